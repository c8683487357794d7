"""Prediction modules of further tokens."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.engine.result import Estimate
from tests.engine.toy import job, llama

HIDDEN, VOCAB, TOKENS = 256, 1024, 128
"""The vocabulary is padded from 1000."""


def run(**keys: Any) -> Estimate:
    """The toy model."""
    return estimate_job(job(llama(), code="megatron", seq_len=TOKENS, **keys))


def kept(answer: Estimate, *names: str) -> int:
    """Bytes of the terms with one of the names in their path, at the end of the forward pass."""
    return sum(t.bytes for t in answer.instant("forward_end").terms if any(name in t.path for name in names))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_module_is_a_layer_a_projection_and_three_norms(count: int) -> None:
    """Embedding and head are the model's own."""
    layer = next(b for b in llama().blocks if b.path == "layers").module.num_params
    more = kept(run(mtp_num_layers=count), "weights") - kept(run(), "weights")
    assert more == 2 * count * (layer + 2 * HIDDEN * HIDDEN + 3 * HIDDEN)


@pytest.mark.parametrize("count", [1, 2])
def test_each_further_token_has_probabilities_of_its_own(count: int) -> None:
    """In fp32 over the whole vocabulary, all there until backward."""
    one, more = (kept(run(**keys), "probabilities in fp32") for keys in ({}, {"mtp_num_layers": count}))
    assert one == 4 * TOKENS * VOCAB
    assert more == (1 + count) * one


def test_they_stand_on_the_last_stage() -> None:
    """No other stage changes."""
    plain, predicting = run(pp=4), run(pp=4, mtp_num_layers=1)
    for stage in range(4):
        before, after = (next(r for r in answer.ranks if r.rank["pp"] == stage).allocated_bytes for answer in (plain, predicting))
        assert (before == after) == (stage < 3)
