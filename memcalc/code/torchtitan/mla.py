"""Multi-head latent attention (torchtitan 0.2.2, models/deepseek_v3/model/model.py)."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.torchtitan.attention import fused, turned
from memcalc.components.mla import LatentAttention
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.shape import expand
from memcalc.tape.tensor import Tensor


@runs(LatentAttention)
def latent_attention(ctx: Context, m: LatentAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden), normalised → the same. Queries, keys and what they are put together from stay until the output is there."""
    heads, one = Axis("heads", m.num_heads), Axis("1", 1)
    nope, rope, v_dim = Axis("qk_nope_head_dim", m.nope_dim), Axis("qk_rope_head_dim", m.rope_dim), Axis("v_head_dim", m.v_dim)
    whole, both = Axis("qk_head_dim", m.nope_dim + m.rope_dim), Axis("qk_nope_head_dim + v_head_dim", m.nope_dim + m.v_dim)
    query = F.view(queries(ctx, m, x), (ctx.batch, ctx.seq, heads, whole))
    q_nope, q_rope = F.split_last(query, (nope, rope))
    q_rope = turned(ctx, q_rope, "query")
    query = F.cat((q_nope, q_rope), whole, "query")

    latent, k_rope = F.split_last(ctx.run(m.kv_a_proj, x), (m.kv_b_proj.inputs, rope))
    k_rope = turned(ctx, F.view(k_rope, (ctx.batch, ctx.seq, one, rope)), "key")
    latent = ctx.run(m.kv_b_proj, ctx.run(m.kv_a_layernorm, latent, "kv_a_layernorm"))
    k_nope, value = F.split_last(F.view(latent, (ctx.batch, ctx.seq, heads, both)), (nope, v_dim))
    key = F.cat((k_nope, expand(k_rope, (ctx.batch, ctx.seq, heads, rope))), whole, "key")
    out = fused(ctx, query, key, value)
    out = ctx.run(m.o_proj, F.view(out, (ctx.batch, ctx.seq, Axis("heads * v_head_dim", heads.size * v_dim.size))))
    del query, q_nope, q_rope, latent, k_rope, k_nope, value, key
    return out


def queries(ctx: Context, m: LatentAttention, x: Tensor) -> Tensor:
    """(batch, seq, heads * head_dim), by way of a latent where there is one."""
    if m.q_proj is not None:
        return ctx.run(m.q_proj, x)
    assert m.q_a_proj is not None
    assert m.q_a_layernorm is not None
    assert m.q_b_proj is not None
    latent = ctx.run(m.q_a_proj, x)
    return ctx.run(m.q_b_proj, ctx.run(m.q_a_layernorm, latent, "q_a_layernorm"))
