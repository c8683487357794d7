"""The fused attention kernel."""

from __future__ import annotations

from memcalc.tape.functional.matmul import under_autocast
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, name: str = "attention output") -> Tensor:
    """The flash kernel: no score matrix; saves query, key, value, output and the fp32 log-sum-exp of each row.

    Args:
        query: (batch, heads, queries, head_dim).
        key: (batch, kv_heads, keys, head_dim).
        value: (batch, kv_heads, keys, value_dim).
        mask: saved as well, where there is one.

    Dao et al. 2022, algorithm 1; aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_flash_attention.
    """
    tape, query, key, value = query.tape, under_autocast(query), under_autocast(key), under_autocast(value)
    out = tape.new((*query.shape[:-1], value.shape[-1]), query.dtype, name)
    lse = tape.new(query.shape[:-1], "float32", "log-sum-exp")
    saves = (query, key, value, out, lse) if mask is None else (query, key, value, out, lse, mask)

    def backward(wants: tuple[bool, ...], g: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        made = [like(t, f"gradient of {n}") for t, n in ((query, "query"), (key, "key"), (value, "value"))]
        return tuple(made)

    tape.record(out, (query, key, value), saves, backward)
    return out
