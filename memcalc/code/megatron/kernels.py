"""The fused attention kernel, and the orders in which it wants its tensors.

Sources: transformer_engine/pytorch/attention/dot_product_attention/backends.py (FusedAttention, FlashAttention) and utils.py
(get_qkv_layout); flash-attention's csrc/flash_attn/flash_api.cpp (mha_bwd).
"""

from __future__ import annotations

from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.functional.shape import view
from memcalc.tape.tensor import Tensor


def kernel(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The kernel itself: saves queries, keys, values, the output and the fp32 log-sum-exp of each row; of dropout it keeps a seed.

    Backward accumulates the gradient of queries in fp32, and makes a sum for each row.

    Args:
        query: (sequence, batch, heads, head_dim).
        key: (sequence, batch, kv_heads, head_dim).
        value: (sequence, batch, kv_heads, value_dim).
    """
    tape = query.tape
    out = tape.new((*query.shape[:-1], value.shape[-1]), query.dtype, "attention output")
    lse = tape.new(query.shape[:-1], "float32", "log-sum-exp")
    seed = tape.new((Axis("seed and offset", 2),), "int64", "random state")

    def backward(wants: tuple[bool, ...], g: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        wide = tape.new(query.shape, "float32", "gradient of query in fp32")
        sums = tape.new(query.shape[:-1], "float32", "sum of output * gradient")
        made = tuple(like(t, f"gradient of {n}") for t, n in ((query, "query"), (key, "key"), (value, "value")))
        del wide, sums
        return made

    tape.record(out, (query, key, value), (query, key, value, out, lse, seed), backward)
    return out


def contiguous(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values in tensors of their own, unless all three are views of one, which the kernel can read (``sbh3d``)."""
    if query.storage is value.storage and key.storage is value.storage:
        return query, key, value
    if key.storage is value.storage:
        key = F.clone(key, "key")
    return query, key, F.clone(value, "value")


def flatten(x: Tensor) -> Tensor:
    """(…, heads, head_dim) → (…, heads * head_dim)."""
    *rows, heads, dim = x.shape
    return view(x, (*rows, Axis("heads * head_dim / tp", heads.size * dim.size)))


def batch_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """flash-attention 2 wants the batch first: with more than one sequence all three are copied for it, and its output back."""
    made = kernel(*(move_batch(x) for x in (query, key, value)))
    return flatten(move_batch(made, keeps=True))


def move_batch(x: Tensor, *, keeps: bool = False) -> Tensor:
    """``x.transpose(0, 1).contiguous()``. For one sequence the two orders are one, and nothing is copied: then ``1 − 1 // batch`` is 0, otherwise 1.

    Args:
        x: to be copied, if it holds more than one sequence.
        keeps: x is saved by what made it, so the copy is one more; otherwise it takes the place of x.
    """
    batch = x.shape[1]
    if isinstance(batch.size, int) and batch.size == 1:
        return x
    tape, dtype, back = x.tape, x.dtype, x.shape
    several = Axis("where there are several", 1 - 1 // batch.size)
    out = tape.new((*x.shape, several) if keeps else x.shape, dtype, "in the other order")
    out.shape = x.shape
    tape.record(out, (x,), (), lambda wants, g: (tape.new(back, dtype, "gradient in the other order"),))
    return out
