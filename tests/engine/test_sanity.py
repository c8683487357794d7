"""The closed form beside the estimate."""

from __future__ import annotations

import pytest

from memcalc.engine.sanity import sanity_of
from tests.engine.toy import job, llama


def test_the_rule_of_34() -> None:
    """34 bytes a token, layer and unit of hidden size."""
    term, *_ = sanity_of(job(llama(), seq_len=128))
    assert term.bytes == 34 * 128 * 256 * 8


@pytest.mark.parametrize(
    ("keys", "factor"), [({"tp": 4, "sp": True}, 34 / 4), ({"tp": 4}, 10 + 24 / 4), ({"recompute": "full"}, 2), ({"pp": 4, "grad_accum": 2}, 34 / 2)]
)
def test_it_follows_the_degrees(keys: dict[str, int], factor: float) -> None:
    """Tensor and sequence parallelism, full recomputation, and a pipeline that is half full."""
    term, *_ = sanity_of(job(llama(), seq_len=128, **keys))
    assert term.bytes == factor * 128 * 256 * 8


def test_unfused_attention_has_scores_a_mask_and_their_product() -> None:
    """Five bytes a head and pair of tokens, unless they are computed again."""
    term, *_ = sanity_of(job(llama(), seq_len=128, attention="eager"))
    assert term.bytes == (34 * 128 * 256 + 5 * 8 * 128 * 128) * 8
    assert term.formula == "(34 * s * b * h / tp + 5 * a * s^2 * b / tp) * layers"
    without, *_ = sanity_of(job(llama(), seq_len=128, attention="eager", code="megatron", recompute="selective"))
    assert without.bytes == 34 * 128 * 256 * 8


def test_the_rule_of_thumb_stands_beside_it() -> None:
    """34 to 40 bytes a token, layer and unit of hidden size; not where layers are recomputed."""
    model = llama()
    closed, thumb = sanity_of(job(model, seq_len=128))
    assert closed.path.endswith("closed form")
    assert thumb.bytes == 40 * 128 * model.hidden_size * 8
    assert len(sanity_of(job(model, seq_len=128, recompute="full"))) == 1
