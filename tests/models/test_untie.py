"""A table at either end instead of one for both."""

from __future__ import annotations

import pytest

from memcalc.engine.estimate import estimate
from memcalc.models.read import read_model
from memcalc.models.untie import untie
from memcalc.specs.read import read_run


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gpt2", "t5-small"])
def test_the_head_counts_its_own_table(name: str) -> None:
    model = read_model(name)
    apart = untie(model)
    assert not apart.tied
    assert apart.num_params - model.num_params == model.vocab_size * model.hidden_size


def test_tensor_parallel_layers_of_torch_untie_the_head() -> None:
    """The result says so, and each rank holds the table and its part of the head."""
    alone, cut = (estimate(read_run("llama-3.2-1b", seq_len=64, tp=tp)) for tp in (1, 2))
    assert cut.model.total_params - alone.model.total_params == 128256 * 2048
    assert any("unties it" in line for line in cut.assumptions)


def test_megatron_keeps_one_table() -> None:
    run = {"code": "megatron", "engine": "megatron", "seq_len": 64}
    assert estimate(read_run("llama-3.2-1b", tp=2, **run)).model.total_params == 1_235_814_400
