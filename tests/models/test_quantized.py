"""Quantising on loading: which layers, and what they take."""

from __future__ import annotations

import pytest

from memcalc.components import Linear
from memcalc.components.quantized import QuantizedLinear, packed, quantised
from memcalc.errors import UnknownNameError
from memcalc.models.lora import linears
from memcalc.models.quantized import LOADINGS, quantise
from memcalc.models.read import read_model


@pytest.mark.parametrize("name", LOADINGS)
def test_every_linear_layer_but_the_head_is_quantised(name: str) -> None:
    """Tables, norms and the head are as they were, and no parameter is lost."""
    plain = read_model("llama-3.1-8b")
    model = quantise(plain, name, compute="bfloat16")
    assert model.num_params == plain.num_params
    for block in model.blocks:
        kinds = {type(linear) for _, linear in linears(block.module)}
        assert kinds <= ({Linear} if block.role == "head" else {QuantizedLinear})


@pytest.mark.parametrize(("name", "each"), [("nf4", 0.5625), ("nf4-dq", 0.5159), ("int8", 1.0), ("gptq", 0.52), ("mxfp4", 0.53125)])
def test_bytes_of_a_weight(name: str, each: float) -> None:
    """Half a byte and its scales, or one; the published figures (Dettmers et al. 2023)."""
    model = quantise(read_model("llama-3.1-8b"), name, compute="bfloat16")
    layer = next(block for block in model.blocks if block.role == "layer")
    numel = sum(m.inputs.size * m.outputs.size for _, m in quantised(layer.module))
    assert numel == 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert sum(packed(layer.module).values()) / numel == pytest.approx(each, rel=2e-3)


def test_experts_are_packed_with_the_layers_around_them() -> None:
    """Eight of Mixtral's, all resident."""
    model = quantise(read_model("mixtral-8x7b"), "nf4", compute="bfloat16")
    layer = next(block for block in model.blocks if block.role == "layer")
    assert sum(packed(layer.module).values()) > 0.5625 * 8 * 3 * 4096 * 14336


def test_an_unknown_name_lists_the_near_ones() -> None:
    """nf4 among them."""
    with pytest.raises(UnknownNameError, match="nf4"):
        quantise(read_model("llama-7b"), "nf-4", compute="bfloat16")


def test_a_head_that_is_not_skipped_is_packed_unless_it_is_tied() -> None:
    """LitGPT packs every linear layer; a table is not packed."""
    for name, packs in (("llama-3.1-8b", True), ("llama-3.2-1b", False)):
        head = next(b for b in quantise(read_model(name), "nf4", compute="bfloat16", skipped=()).blocks if b.role == "head")
        assert bool(dict(quantised(head.module))) is packs


def test_skipped_layers_stay_as_they_are() -> None:
    """By their names; one that no layer has is an error."""
    model = quantise(read_model("llama-3.1-8b"), "nf4", compute="bfloat16", skipped=("down_proj", "lm_head"))
    layer = next(b for b in model.blocks if b.role == "layer")
    assert {m.name for _, m in linears(layer.module) if type(m) is Linear} == {"down_proj"}
    with pytest.raises(UnknownNameError, match="down_proj"):
        quantise(read_model("llama-3.1-8b"), "nf4", compute="bfloat16", skipped=("down_prj",))
