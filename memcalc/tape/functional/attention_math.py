"""Attention written out: what ``scaled_dot_product_attention`` falls back to where no fused kernel takes the inputs."""

from __future__ import annotations

from memcalc.tape.functional.loss import softmax
from memcalc.tape.functional.matmul import matmul
from memcalc.tape.functional.pointwise import add, cast, like, scale
from memcalc.tape.functional.shape import clone
from memcalc.tape.tensor import Axis, Tensor

HALF = ("bfloat16", "float16")


def math_attention(query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, is_single: bool = False, name: str = "attention output") -> Tensor:
    """Scores in full, in fp32; saves scaled queries and keys, the probabilities and a copy of the values, all in fp32.

    Args:
        query, key: (batch, heads, length, head_dim), contiguous.
        value: (batch, heads, keys, value_dim), a slice of a wider tensor.
        mask: of bools, for each query and key; none means causal.
        is_single: there is one sequence, whose heads a batched product takes as they lie; those of several are copied into order.
        name: of the result.

    A CPU takes this way where a value head is not as wide as a key head (multi-head latent attention), which its flash kernel does not
    support; a GPU has kernels that do (aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math).
    """
    tape, dtype = query.tape, query.dtype
    bias = None if mask is None else tape.new(mask.shape, dtype, "mask of scores")
    wide = [cast(x, "float32" if dtype in HALF else dtype, f"{what} in fp32") for x, what in ((query, "query"), (key, "key"), (value, "value"))]
    scaled = scale(wide[0], "scaled query")
    if bias is None:
        square = (query.shape[2], Axis("keys", key.shape[2].size))
        flags = tape.new(square, "bool", "ones")
        lower = tape.new(square, "bool", "causal flags")
        del flags
        bias = tape.new(square, wide[0].dtype, "causal mask of scores")
        del lower
    shape = (*query.shape[:3], Axis("keys", key.shape[2].size))
    scores = matmul(scaled, scale(wide[1], "scaled key"), shape, "scores")
    scores = add(scores, bias, "masked scores")
    scores = softmax(scores, name="probabilities")
    with tape.no_grad():
        returned = cast(scores, dtype, "probabilities in the model's dtype")
    rows = (*query.shape[:3], value.shape[-1])
    out = matmul(scores, wide[2], rows, name) if is_single else in_order(matmul(scores, clone(wide[2], "value in order"), rows, name))
    out = cast(out, dtype, name)
    del returned, wide, scaled, bias
    return out


def in_order(x: Tensor) -> Tensor:
    """x itself; its gradient arrives transposed and is copied into order."""
    y = Tensor(x.tape, x.shape, x.dtype, x.storage)
    x.tape.record(y, (x,), (), lambda wants, g: (like(g, "gradient in order"),))
    return y
