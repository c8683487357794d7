"""Adapters under Megatron: what is saved beside frozen products, and how sequence parallelism cuts it."""

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


def test_an_adapter_reads_its_own_part_of_the_sequence() -> None:
    """Where the sequence is cut, half of the normalised input and of the first factor's columns is kept on each of two ranks, as beside no adapter."""
    cut, whole = (held("self_attn", "linear_qkv", tp=2, sp=sp, drops=True) for sp in (True, False))
    assert (cut["q_proj/after dropout"], whole["q_proj/after dropout"]) == (llama().hidden_size, 2 * llama().hidden_size)
    assert cut["q_proj/low-rank"] * 2 == whole["q_proj/low-rank"]


def test_dropout_keeps_what_it_makes_and_a_mask() -> None:
    """In every layer, since the embedding's output is made a leaf."""
    found = held("self_attn", "linear_qkv", drops=True)
    assert found["q_proj/after dropout"] == 2 * llama().hidden_size
    assert found["q_proj/dropout mask"] == llama().hidden_size
