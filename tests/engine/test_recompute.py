"""Which layers run again."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.engine.recompute import units_of
from memcalc.specs.read import read_run
from tests.engine.toy import job, llama


def units(**keys: Any) -> list[tuple[int, bool, int]]:
    """How many units of how many layers, for the eight layers of the toy model."""
    found = units_of(read_run({"model": "toy"}, **keys), llama().blocks)
    return [(unit.block.repeat, unit.again, unit.layers) for unit in found if unit.block.role == "layer"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [(8, False, 1)]),
        ({"recompute": "full"}, [(8, True, 1)]),
        ({"recompute": "full", "recompute_method": "uniform"}, [(8, True, 1)]),
        ({"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 4}, [(2, True, 4)]),
        ({"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 3}, [(2, True, 3), (1, True, 2)]),
        ({"recompute": "full", "recompute_method": "block", "recompute_num_layers": 3}, [(3, True, 1), (5, False, 1)]),
        ({"recompute": "full", "recompute_method": "block", "recompute_num_layers": 20}, [(8, True, 1)]),
    ],
    ids=str,
)
def test_units(keys: dict[str, Any], expected: list[tuple[int, bool, int]]) -> None:
    """Uniform: every n layers as one; block: the first n."""
    assert units(**keys) == expected


@pytest.mark.parametrize("code", ["transformers", "megatron"])
def test_a_unit_keeps_one_input_whatever_it_holds(code: str) -> None:
    """Of eight layers in pairs, four inputs; and in backward a pair is whole."""
    one, pairs = (
        estimate_job(job(llama(), code=code, recompute="full", recompute_method="uniform", recompute_num_layers=n)).instant("forward_end") for n in (1, 2)
    )
    assert one.allocated_bytes - pairs.allocated_bytes == 4 * 2 * 128 * 256


def test_the_first_n_layers_save_what_the_others_keep() -> None:
    """As much a layer as between none and all."""

    def kept(**keys: Any) -> int:
        instant = estimate_job(job(llama(), code="megatron", **keys)).instant("forward_end")
        return sum(t.bytes for t in instant.terms if t.path.startswith("activations/layers"))

    none, full = kept(), kept(recompute="full")
    some = kept(recompute="full", recompute_method="block", recompute_num_layers=3)
    assert none - some == (none - full) * 3 // 8
