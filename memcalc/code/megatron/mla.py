"""Multi-head latent attention (megatron/core/transformer/multi_latent_attention.py, MLASelfAttention, with fused rotary positions)."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.megatron import lora, parallel
from memcalc.code.megatron.checkpoint import WithoutOutput
from memcalc.code.megatron.core_attention import core_attention
from memcalc.code.megatron.options import options
from memcalc.components import Linear
from memcalc.components.mla import LatentAttention
from memcalc.errors import InputError
from memcalc.specs.model import Axis
from memcalc.tape.functional.shape import split_last, view
from memcalc.tape.tensor import Tensor


@runs(LatentAttention)
def latent_attention(ctx: Context, m: LatentAttention, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden), normalised → the same. Latents are made on each rank's part of the sequence; queries, keys and values are cut by heads.

    Raises:
        InputError: the model has an indexer.
    """
    if m.indexer is not None:
        raise InputError("code: megatron has no program for sparse latent attention; use code: transformers", where="code")
    queries = x
    if m.q_a_proj is not None and m.q_a_layernorm is not None:
        queries = lora.plain(ctx, x, m.q_a_proj, "query latent")
    both = lora.plain(ctx, x, m.kv_a_proj, "key and value latent")
    latent, key = split_last(both, (m.kv_b_proj.inputs, Axis("qk_rope_head_dim", m.rope_dim)))
    del x, both
    key = parallel.gather_sequence(ctx, key, "rotary key")
    inputs = (queries, latent, key)
    del queries, latent, key
    if "mla_up_proj" in options(ctx).recompute and ctx.settings.training:
        kept = WithoutOutput(ctx)
        query, keys, values = kept.run(lambda q, latent, key: up(ctx, m, q, latent, key), *inputs)
        del inputs
        return kept.drop(attend(ctx, m, query, keys, values))
    query, keys, values = up(ctx, m, *inputs)
    del inputs
    return attend(ctx, m, query, keys, values)


def attend(ctx: Context, m: LatentAttention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Core attention and the output's product."""
    out = core_attention(ctx, query, key, value, dropout=0.0, packed=False)
    del query, key, value
    return lora.row(ctx, out, m.o_proj, "attention branch")


def up(ctx: Context, m: LatentAttention, queries: Tensor, latent: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Latents → queries, keys and values of this rank's heads: queries are turned in place, keys and values written anew by one kernel."""
    heads = Axis("heads", m.num_heads // ctx.settings.tp)
    wide = Axis("qk_head_dim", m.nope_dim + m.rope_dim)
    if m.q_a_layernorm is not None:
        queries = ctx.run(m.q_a_layernorm, queries, "q_a_layernorm")
    q = product(ctx, m.q_proj or m.q_b_proj, queries, seen=(heads, wide), name="query")
    del queries
    latent = ctx.run(m.kv_a_layernorm, latent, "kv_a_layernorm")
    kv = product(ctx, m.kv_b_proj, latent, seen=(heads, Axis("qk_nope_head_dim + v_head_dim", m.nope_dim + m.v_dim)), name="key and value")
    del latent
    keys, values = turned_keys(kv, key, wide, Axis("v_head_dim", m.v_dim))
    return turned_in_place(q), keys, values


def product(ctx: Context, linear: Linear | None, x: Tensor, *, seen: tuple[Axis, Axis], name: str) -> Tensor:
    """A column-parallel product, seen by heads."""
    assert linear is not None
    heads, dim = seen
    out = lora.column(ctx, x, [linear], Axis(f"{heads.name} * {dim.name}", heads.size * dim.size), name)
    return view(out, (*out.shape[:-1], heads, dim))


def turned_in_place(q: Tensor) -> Tensor:
    """``fused_apply_mla_rope_for_q``: writes over its input, and over the gradient in backward."""
    out = Tensor(q.tape, q.shape, q.dtype, q.storage)
    q.tape.record(out, (q,), (), lambda wants, g: (g,))
    return out


def turned_keys(kv: Tensor, key: Tensor, dim: Axis, value_dim: Axis) -> tuple[Tensor, Tensor]:
    """``fused_apply_mla_rope_for_kv``: keys with the rotary part that all heads share, and values. Saves angles alone, which are resident."""
    tape, rows = kv.tape, kv.shape[:-1]
    keys, values = tape.new((*rows, dim), kv.dtype, "key"), tape.new((*rows, value_dim), kv.dtype, "value")
    shapes = (kv.shape, key.shape)
    dtype = kv.dtype

    def backward(wants: tuple[bool, ...], *gs: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(tape.new(shape, dtype, f"gradient of {n}") for shape, n in zip(shapes, ("key and value", "rotary key"), strict=True))

    tape.record((keys, values), (kv, key), (), backward)
    return keys, values
