"""Adapters under Megatron: what is saved beside frozen products, and what sequence parallelism gathers for them."""

from __future__ import annotations

from typing import Any

from memcalc.engine.estimate import estimate_job
from memcalc.models.fused_lora import adapt_fused
from memcalc.specs.run import LoraSpec
from tests.engine.toy import job, llama

LAYERS, TOKENS = 8, 128


def held(part: str, *targets: str, **keys: Any) -> dict[str, int]:
    """What a part of a layer has at the end of forward, by tensor, per layer and token."""
    lora = LoraSpec(r=4, target_modules=targets, dropout=0.1 if keys.pop("drops", False) else 0.0)
    instant = estimate_job(job(adapt_fused(llama(), lora), code="megatron", lora={"r": 4}, **keys)).instant("forward_end")
    prefix = f"activations/layers/{part}/"
    return {t.path.removeprefix(prefix): t.bytes // (LAYERS * TOKENS) for t in instant.terms if t.path.startswith(prefix)}


def test_a_frozen_product_keeps_no_input_and_an_adapter_does() -> None:
    bare, adapted = held("mlp", "linear_qkv"), held("mlp", "linear_fc2")
    assert "gated" not in bare
    assert adapted["gated"] == 2 * 688
    assert adapted["down_proj/low-rank"] == 2 * 4


def test_an_adapter_keeps_the_gathered_sequence_on_every_rank() -> None:
    found = held("self_attn", "linear_qkv", tp=2, sp=True)
    assert found["q_proj/gathered input of the adapter"] == 2 * llama().hidden_size
    assert "q_proj/gathered input of the adapter" not in held("self_attn", "linear_qkv", tp=2)


def test_dropout_keeps_what_it_makes_and_a_mask() -> None:
    """The first layer's input takes no gradient, so that there the mask goes."""
    found = held("self_attn", "linear_qkv", drops=True)
    assert found["q_proj/after dropout"] == 2 * llama().hidden_size
    assert found["q_proj/dropout mask"] == llama().hidden_size * (LAYERS - 1) // LAYERS
