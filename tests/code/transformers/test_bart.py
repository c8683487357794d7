"""BART's layers by hand."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm, Linear
from memcalc.components.bart import BartAttention, BartLayer
from memcalc.specs.model import Axis
from tests.code.transformers.recorded import BATCH, SEQ, TOKENS, record

HIDDEN, INNER, HEADS = Axis("d_model", 6), Axis("ffn_dim", 20), 3
WIDE = 2 * TOKENS * HIDDEN.size


def attention() -> BartAttention:
    """An encoder's."""
    q, k, v, o = (Linear(name, HIDDEN, HIDDEN, bias=True) for name in ("q_proj", "k_proj", "v_proj", "out_proj"))
    return BartAttention(HEADS, 2, "encoder", q, k, v, o)


def layer() -> BartLayer:
    """An encoder's."""
    norm = LayerNorm(HIDDEN)
    return BartLayer(attention(), norm, None, None, Linear("fc1", HIDDEN, INNER, bias=True), Linear("fc2", INNER, HIDDEN, bias=True), norm)


def test_the_fused_kernel_saves_queries_keys_values_and_its_output() -> None:
    """With a log-sum-exp for each query; the layer's output is there, too."""
    assert record(attention(), HIDDEN.size).saved_bytes == 4 * WIDE + 4 * BATCH * HEADS * SEQ + WIDE


def test_eager_attention_saves_probabilities_in_the_models_dtype() -> None:
    """And queries, keys and values as batched products take them."""
    assert record(attention(), HIDDEN.size, attention="eager").saved_bytes == 4 * WIDE + 2 * BATCH * HEADS * SEQ * SEQ + WIDE


def test_norms_before_the_branches_save_as_much() -> None:
    """After each branch a norm saves the sum before it; before each, the sum stands in the stream itself, and what the norm gives is saved."""
    after = record(layer(), HIDDEN.size).saved_bytes
    before = record(replace(layer(), pre_norm=True), HIDDEN.size).saved_bytes
    assert before == after


def test_dropout_keeps_a_byte_for_each_element() -> None:
    """On both branches and inside the network, where the activation's result is copied, too."""
    plain, dropped = record(layer(), HIDDEN.size).saved_bytes, record(replace(layer(), dropout=0.1, activation_dropout=0.1), HIDDEN.size).saved_bytes
    assert dropped - plain == TOKENS * (2 * HIDDEN.size + INNER.size)
