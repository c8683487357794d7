"""Experts: how parallelism cuts them, what a token does not visit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.components.linear import Linear
from memcalc.components.looped import ModuleMoE
from memcalc.components.mlp import GatedMLP
from memcalc.components.moe import CorrectedSoftmaxRouter, Experts, MoE, SoftmaxRouter, num_inactive
from memcalc.specs.model import Axis, Component, Degrees
from memcalc.tape.tensor import numel

HIDDEN, WIDE, COUNT = Axis("hidden_size", 16), Axis("moe_intermediate_size", 32), Axis("num_experts", 8)
ROUTER = SoftmaxRouter("gate", HIDDEN, COUNT, 2)


def modules(*, count: int = 8) -> tuple[GatedMLP, ...]:
    """Experts that are modules of their own."""
    one = GatedMLP(
        gate=Linear("gate_proj", HIDDEN, WIDE, split="expert_column"),
        up=Linear("up_proj", HIDDEN, WIDE, split="expert_column"),
        down=Linear("down_proj", WIDE, HIDDEN, split="expert_row"),
    )
    return (one,) * count


EVERY_KIND: dict[str, Component] = {
    "fused": Experts(COUNT, HIDDEN, WIDE),
    "transposed": Experts(COUNT, HIDDEN, WIDE, transposed=True),
    "in three tensors": Experts(COUNT, HIDDEN, WIDE, fused=False),
    "without gates": Experts(COUNT, HIDDEN, WIDE, gated=False),
}


def local(module: Component, **degrees: int) -> int:
    """Elements of experts' weights on one rank."""
    return sum(int(numel(w.local(Degrees(**degrees)))) for _, w in module.weights() if w.is_expert)


@pytest.mark.parametrize("module", EVERY_KIND.values(), ids=EVERY_KIND)
@given(ep=st.sampled_from((1, 2, 4, 8)), etp=st.sampled_from((1, 2)))
def test_expert_parallelism_divides_experts(module: Component, ep: int, etp: int) -> None:
    """Whole experts by its degree, each of them by that of expert-tensor parallelism; nothing else cuts them."""
    whole = sum(w.num_params for _, w in module.weights() if w.is_expert)
    assert local(module, expert=ep, expert_column=etp, expert_row=etp) * ep * etp == whole
    assert local(module, column=2, row=2, vocab=2) == whole


def test_biases_of_a_row_parallel_projection_are_whole() -> None:
    """Every part of an expert would add the same."""
    shapes = {w.name: w.local(Degrees(expert=2, expert_column=4, expert_row=4)) for w in Experts(COUNT, HIDDEN, WIDE, bias=True).own_weights()}
    assert [axis.size for axis in shapes["gate_up_proj_bias"]] == [4, 16]
    assert [axis.size for axis in shapes["down_proj_bias"]] == [4, 16]


def test_routers_and_shared_experts_are_on_every_rank() -> None:
    shared = GatedMLP(Linear("gate_proj", HIDDEN, WIDE), Linear("up_proj", HIDDEN, WIDE), Linear("down_proj", WIDE, HIDDEN))
    moe = MoE(ROUTER, Experts(COUNT, HIDDEN, WIDE), shared=shared)
    cut = {path for path, w in moe.weights() if w.is_expert}
    assert cut == {"experts/gate_up_proj", "experts/down_proj"}


@pytest.mark.parametrize(
    ("changed", "shapes"),
    [
        ({}, {"gate_up_proj": (8, 64, 16), "down_proj": (8, 16, 32)}),
        ({"transposed": True}, {"gate_up_proj": (8, 16, 64), "down_proj": (8, 32, 16)}),
        ({"gated": False}, {"up_proj": (8, 32, 16), "down_proj": (8, 16, 32)}),
        ({"fused": False}, {"mlp/w1": (8, 32, 16), "mlp/v1": (8, 32, 16), "mlp/w2": (8, 32, 16)}),
    ],
)
def test_weights_are_held_as_the_code_has_them(changed: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    experts = Experts(COUNT, HIDDEN, WIDE, **changed)
    assert {w.name: tuple(axis.size for axis in w.shape) for w in experts.own_weights()} == shapes


@pytest.mark.parametrize("experts", [Experts(COUNT, HIDDEN, WIDE), modules()], ids=["stacked", "modules"])
def test_a_token_leaves_out_all_but_its_experts(experts: Any) -> None:
    """Six of eight, wherever the mixture stands."""
    moe = MoE(ROUTER, experts) if isinstance(experts, Experts) else ModuleMoE(ROUTER, experts)
    assert num_inactive(moe) == 6 * 3 * 16 * 32
    assert num_inactive(ROUTER) == 0


def test_a_correction_is_a_frozen_parameter() -> None:
    """It is counted, and no gradient ever reaches it."""
    (correction,) = [w for w in CorrectedSoftmaxRouter("gate", HIDDEN, COUNT, 2).own_weights() if w.frozen]
    assert correction.num_params == 8
    assert correction.dtype == "float32"
