"""What Megatron-core's token dispatchers keep between steps."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.engine.strategies._routed import BEHIND, TABLES
from tests.engine.toy import job
from tests.engine.toy_gpt import mixture

SMALL: dict[str, Any] = {"hidden": 256, "heads": 8, "kv_heads": 4, "head_dim": 32, "width": 512}
LAYERS, TOKENS, HIDDEN_BYTES = 4, 128, 2 * 256
"""Of the toy."""


def kept(path: str, name: str, **keys: Any) -> int:
    """Bytes of a path at an instant of the most loaded rank."""
    instant = estimate_job(job(mixture(**SMALL), code="megatron", **keys)).ranks[0].instants
    return sum(t.bytes for i in instant if i.name == name for t in i.terms if t.path == path)


@pytest.mark.parametrize("keys", [{"recompute": "full"}, {"recompute": "selective", "recompute_modules": ["moe"]}])
def test_the_input_of_a_checkpoint_and_its_gradient_stay_until_the_layer_runs_again(keys: dict[str, Any]) -> None:
    """Between steps two hidden states of every layer; none when the forward pass is over."""
    assert kept(BEHIND, "start", **keys) == kept(BEHIND, "optimizer_step", **keys) == 2 * LAYERS * TOKENS * HIDDEN_BYTES
    assert kept(BEHIND, "forward_end", **keys) == 0


def test_without_checkpoints_nothing_stays_behind_scores() -> None:
    """The graph has nothing saved any more."""
    assert kept(BEHIND, "start") == 0


def test_a_pipeline_keeps_those_of_its_own_layers() -> None:
    """Half of them on each of two stages, with sweeps of sizes, too."""
    assert kept(BEHIND, "start", recompute="full", pp=2) == LAYERS * TOKENS * HIDDEN_BYTES


def test_tables_are_as_wide_as_the_router_says() -> None:
    """A score and a bool for each token and expert."""
    narrow, wide = kept(TABLES, "start"), kept(TABLES, "start", moe_router_dtype="fp32")
    assert (narrow, wide) == (LAYERS * TOKENS * 8 * 3, LAYERS * TOKENS * 8 * 5)
