"""Which modules a quantization applies to."""

from __future__ import annotations

import pytest

from memcalc.specs.quantization import Module, Quantization, Rule, Scheme

NF4, INT8 = Scheme("nf4", 4), Scheme("int8", 8)


def made(**more: object) -> Quantization:
    """One that quantises all to NF4, but for what is said."""
    return Quantization("bitsandbytes", "nf4", **{"rules": (Rule(NF4),), **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("model.layers.1.mlp.up_proj", True),
        ("model.layers.11.mlp.up_proj", False),
        ("model.layers.3.mlp.gate", True),
        ("model.layers.3.mlp.gate_proj", False),
        ("lm_head", True),
        ("model.visual.blocks.0.fc1", True),
    ],
)
def test_names_hold_up_to_a_module_boundary(name: str, *, plain: bool) -> None:
    """From the beginning, as a regular expression, or as an ending (transformers/quantizers/quantizers_utils.py)."""
    names = ("model.layers.1", r"model.layers.*.mlp.gate", "visual")
    found = made(skipped=(*names, r".*visual"), endings=("lm_head",))
    assert (found.scheme_for(Module((name,))) is None) is plain


def test_the_first_rule_that_fits_holds() -> None:
    found = made(rules=(Rule(INT8, r".*down_proj$"), Rule(NF4)))
    assert found.scheme_for(Module(("model.layers.0.mlp.down_proj",))) == INT8
    assert found.scheme_for(Module(("model.layers.0.mlp.up_proj",))) == NF4
    assert made(rules=(Rule(INT8, r".*down_proj$"),)).scheme_for(Module(("model.layers.0.mlp.up_proj",))) is None


def test_places() -> None:
    """A head, what stands outside the layers, experts, and stacks of them."""
    head, layer, other = (Module(("x",), place) for place in ("head", "layer", "elsewhere"))
    assert [made(plain_head=True).scheme_for(m) for m in (head, layer, other)] == [None, NF4, NF4]
    assert [made(layers_only=True).scheme_for(m) for m in (head, layer, other)] == [None, NF4, None]
    expert, stack = Module(("x",), is_expert=True), Module(("x",), is_expert=True, is_stacked=True)
    assert [made(experts_only=True).scheme_for(m) for m in (layer, expert, stack)] == [None, NF4, NF4]
    assert [made(stacked=False).scheme_for(m) for m in (layer, expert, stack)] == [NF4, NF4, None]
