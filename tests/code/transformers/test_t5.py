"""T5's layers by hand: biases that all layers share, and three ways of attention."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Linear
from memcalc.components.t5 import T5MLP, T5Attention, T5Norm
from memcalc.specs.model import Axis
from tests.code.transformers.recorded import BATCH, SEQ, TOKENS, record

HIDDEN, HEADS, DIM = Axis("d_model", 8), 3, 2
INNER = Axis("num_heads * d_kv", HEADS * DIM)
SCORES = BATCH * HEADS * SEQ * SEQ
BIAS = HEADS * SEQ * SEQ


def attention(**more: object) -> T5Attention:
    """An encoder's, with a table of its own."""
    q, k, v = (Linear(name, HIDDEN, INNER) for name in "qkv")
    found = T5Attention(HEADS, DIM, "encoder", q, k, v, Linear("o", INNER, HIDDEN), buckets=4)
    return replace(found, **more)  # type: ignore[arg-type]


def test_a_bias_that_takes_a_gradient_is_written_out_in_fp32() -> None:
    """Queries, keys, values and probabilities in fp32; the bias itself and the buckets of its rows."""
    saved = record(attention(), HIDDEN.size).saved_bytes
    heads = TOKENS * INNER.size
    assert saved == 4 * (3 * heads + SCORES) + 2 * heads + 2 * TOKENS * HIDDEN.size + 2 * BIAS + 8 * SEQ * SEQ


def test_a_frozen_bias_is_left_to_the_fused_kernel() -> None:
    """Which saves it in order, beside the encoder's copy that all layers share, and the log-sum-exp instead of probabilities."""
    saved = record(attention(), HIDDEN.size, trainable=lambda path: "bias" not in path).saved_bytes
    heads = TOKENS * INNER.size
    assert saved == 2 * 4 * heads + 4 * BATCH * HEADS * SEQ + 2 * TOKENS * HIDDEN.size + 2 * 2 * BIAS


def test_eager_attention_saves_probabilities_in_the_models_dtype() -> None:
    """And queries, keys and values as batched products take them."""
    saved = record(attention(), HIDDEN.size, attention="eager").saved_bytes
    heads = TOKENS * INNER.size
    assert saved == 2 * (3 * heads + SCORES + heads) + 2 * TOKENS * HIDDEN.size + 2 * BIAS + 8 * SEQ * SEQ


def test_a_norm_saves_its_input_twice() -> None:
    """As it came and in fp32; the reciprocal in fp32, and both factors of the last product. The input itself is the caller's, here dropped."""
    recording = record(T5Norm(HIDDEN), HIDDEN.size)
    assert "x" not in recording.forward.changes
    assert recording.saved_bytes == TOKENS * (4 * HIDDEN.size + 4 + 2 * HIDDEN.size + 2 * HIDDEN.size)


def test_a_gate_is_one_more_projection() -> None:
    """Its result is saved, and so is the activation's; dropout keeps a byte for each element and a copy."""
    inner = Axis("d_ff", 20)
    plain = T5MLP(Linear("wi", HIDDEN, inner), None, Linear("wo", inner, HIDDEN))
    gated = T5MLP(Linear("wi_0", HIDDEN, inner), Linear("wi_1", HIDDEN, inner), Linear("wo", inner, HIDDEN))
    wide = TOKENS * inner.size
    assert record(gated, HIDDEN.size).saved_bytes - record(plain, HIDDEN.size).saved_bytes == 2 * 2 * wide
    dropped = replace(gated, dropout=0.1)
    assert record(dropped, HIDDEN.size).saved_bytes - record(gated, HIDDEN.size).saved_bytes == wide
