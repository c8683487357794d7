"""Multi-head latent attention: DeepSeek V2, V3 and V3.2, and the models that took it over."""

from __future__ import annotations

from memcalc.code import ring
from memcalc.code.context import Context, runs
from memcalc.code.transformers.attention import temper
from memcalc.code.transformers.indexer import limited, sparse_mask
from memcalc.code.transformers.liger import in_order
from memcalc.code.transformers.mask import mask_name
from memcalc.code.transformers.rotary import rotate
from memcalc.components.mla import LatentAttention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.attention_math import math_attention
from memcalc.tape.functional.shape import expand
from memcalc.tape.tensor import Tensor


@runs(LatentAttention)
def latent_attention(ctx: Context, m: LatentAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (DeepseekV2Attention, DeepseekV3Attention, DeepseekV32Attention).

    The latents are split off as views, the keys put together in a buffer of their own; all of it is held until the output projection is through.
    """
    before = earlier_indices(ctx, m) if m.follows else None
    heads = Axis("heads", m.num_heads // ctx.settings.tp)
    nope, rope, v_dim = Axis("qk_nope_head_dim", m.nope_dim), Axis("qk_rope_head_dim", m.rope_dim), Axis("v_head_dim", m.v_dim)
    whole = Axis("qk_head_dim", m.nope_dim + m.rope_dim)
    latent_q, q = queries(ctx, m, x)
    q = F.split_heads(q, (ctx.batch, heads, ctx.seq, whole))
    q_nope, q_rot = F.split_last(q, (nope, rope))

    latent = ctx.run(m.kv_a_proj, x)
    kv, k_rot = F.split_last(latent, (m.kv_b_proj.inputs, rope))
    kv = ctx.run(m.kv_a_layernorm, in_order(ctx, kv, "latent in order"), "kv_a_layernorm")
    k_rot = F.view(k_rot, (ctx.batch, Axis("1", 1), ctx.seq, rope))
    q_rot, k_rot = rotate(ctx, m.rotary, q_rot, k_rot)
    kv, k_rot = ctx.remember(kv, "latent"), ctx.remember(k_rot, "rotary key")
    query = F.cat((q_nope, q_rot), whole, "query")
    if m.tempered:
        query = temper(ctx, query)
    key, value, both = expand_kv(ctx, m, kv, k_rot, (heads, nope, v_dim, whole))

    mask = ctx.shared.get(mask_name(m.window))
    chosen = None
    if latent_q is not None and mask is not None:
        mask, *chosen = sparse_mask(ctx, m.indexer or m.follows, x, latent_q, mask)
    out = attend(ctx, query, key, value, mask)
    out = ctx.run(m.o_proj, F.view(out, (ctx.batch, ctx.seq, Axis("heads * v_head_dim", heads.size * v_dim.size))))
    del latent_q, q, q_nope, q_rot, latent, kv, k_rot, query, key, value, both, mask, chosen, before
    return out


def earlier_indices(ctx: Context, m: LatentAttention) -> Tensor | None:
    """Keys that an earlier layer has picked, int32: a variable of the model's forward, and an argument that a checkpoint of this layer keeps."""
    if ctx.arguments:  # the checkpoint runs its layer again
        return None
    if ctx.settings.records and not ctx.tape.grad_enabled and not m.fresh:
        ctx.arguments.append(Tensor(ctx.tape, (), "int32", None))
        return None
    before = ctx.tape.new((ctx.batch, ctx.seq, limited(ctx, m.follows)), "int32", "indices of the layer before")
    if m.fresh:
        ctx.arguments.append(before)
    return before


def queries(ctx: Context, m: LatentAttention, x: Tensor) -> tuple[Tensor | None, Tensor]:
    """The queries' latent, where there is one that is looked at again, and the queries (batch, seq, heads * head_dim)."""
    if m.q_proj is not None:
        return None, ctx.run(m.q_proj, x)
    assert m.q_a_proj is not None
    assert m.q_a_layernorm is not None
    assert m.q_b_proj is not None
    latent = ctx.run(m.q_a_layernorm, ctx.run(m.q_a_proj, x), "q_a_layernorm")
    return latent if m.indexer is not None or m.follows else None, ctx.run(m.q_b_proj, latent)


def expand_kv(ctx: Context, m: LatentAttention, kv: Tensor, k_rot: Tensor, axes: tuple[Axis, Axis, Axis, Axis]) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of every head, and the tensor that holds the values (expand_kv).

    Keys are copied into an empty buffer in two steps; going back, each step clones the whole gradient before it takes its part out
    (CopySlices in torch/csrc/autograd/functions/tensor.cpp).
    """
    heads, nope, v_dim, whole = axes
    tape = ctx.tape
    both = F.split_heads(ctx.run(m.kv_b_proj, kv), (ctx.batch, heads, ctx.seq, Axis("qk_nope_head_dim + v_head_dim", nope.size + v_dim.size)))
    k_nope, value = F.split_last(both, (nope, v_dim))
    spread = expand(k_rot, (ctx.batch, heads, ctx.seq, k_rot.shape[-1]))
    buffer = tape.new((ctx.batch, heads, ctx.seq, whole), both.dtype, "key")

    def copied(into: Tensor, part: Tensor, *, filled: bool) -> Tensor:
        shape, y = part.shape, Tensor(tape, into.shape, into.dtype, into.storage)

        def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
            rest = F.like(g, "gradient of key")
            taken = tape.new(shape, g.dtype, "gradient of part of key")
            zeros = F.like(taken, "zeros") if filled else None
            del zeros
            return rest, taken

        tape.record(y, (into, part), (), backward)
        return y

    first = copied(buffer, k_nope, filled=False)
    return copied(first, spread, filled=True), value, both


def eager_scores(ctx: Context, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Scores in the model's dtype, softmax in fp32 (eager_attention_forward); queries and keys lie in order already."""
    shape = (*query.shape[:3], Axis("keys", key.shape[2].size))
    scores = F.scale(F.matmul(query, key, shape, "scores"), "scaled scores")
    if mask is not None:
        scores = F.add(scores, mask, "masked scores")
    scores = F.cast(F.softmax(scores, "float32", "probabilities in fp32"), query.dtype, "probabilities")
    if ctx.probabilities is not None:
        ctx.probabilities.append(scores)
    value = value if ctx.has_one_sequence else F.clone(value, "value in order")
    return F.clone(F.matmul(scores, value, (*query.shape[:3], value.shape[-1]), "attention output"), "attention output in order")


def attend(ctx: Context, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """One fused kernel for flash attention; scores in full otherwise, by the model's own eager code or by PyTorch's.

    ``sdpa`` is followed as a CPU runs it, which has no fused kernel for values narrower than keys; on a GPU one exists, and
    ``flash_attention_2`` shows what it saves.
    """
    if ctx.has_cp:
        return ring.attend(ctx.tape, ctx.settings.cp, query, key, value)
    if ctx.settings.attention == "eager":
        return eager_scores(ctx, query, key, value, mask)
    if ctx.settings.attention == "sdpa":
        return F.clone(math_attention(query, key, value, mask=mask, is_single=ctx.has_one_sequence), "attention output in order")
    return F.scaled_dot_product_attention(query, key, value)
