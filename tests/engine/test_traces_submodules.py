"""Traced steps of transformers' modules under NeMo Automodel's checkpoints: norms, mixer and network of each layer, each by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run
from tests.traced import Case, errors, load_cases

TOLERANCE = 0.001
"""The first layer's attention lets go of the angles when it has run back; memcalc, when the layer has."""


@pytest.mark.parametrize("case", load_cases("submodules"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


def kept(recompute: str) -> int:
    """Bytes that layers of Llama 3.2 1B keep from forward to backward."""
    answer = estimate(Run.model_validate({"model": "llama-3.2-1b", "micro_batch": 8, "seq_len": 2048, "recompute": recompute}))
    paths = ("activations/layers", "activations/hidden_states")
    return sum(t.bytes for t in answer.instant("forward_end").terms if t.path.startswith(paths))


def test_a_layer_keeps_four_hidden_states() -> None:
    """Its input, what each norm gives, and the sum between: three more than a layer that is checkpointed whole."""
    assert kept("submodules") - kept("full") == 3 * 16 * 8 * 2048 * 2048 * 2


@pytest.mark.parametrize(
    "keys",
    [{"code": "megatron"}, {"sharding": {"engine": "deepspeed", "zero": 2, "dp": 2}}, {"offload": {"activations": "cpu"}}, {"model": "bert-base-uncased"}],
)
def test_where_they_are_not_known_they_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="recompute: submodules are known"):
        estimate(Run.model_validate({"model": "llama-7b", "seq_len": 512, "recompute": "submodules", **keys}))
