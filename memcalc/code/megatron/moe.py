"""A mixture of experts: shared experts, router, dispatch, grouped products, combination.

Sources: megatron/core/transformer/moe/moe_layer.py (MoELayer.forward), experts.py (TEGroupedMLP), shared_experts.py. Experts one by one
(SequentialMLP) are counted as if together: they keep the same, but their gradients in between are those of one expert, which is a little less.
"""

from __future__ import annotations

from memcalc.code.checkpoint import checkpoint
from memcalc.code.context import Context, runs
from memcalc.code.fp8 import LOW_GRADIENT, kept_input, pair
from memcalc.code.megatron import dispatch, parallel
from memcalc.code.megatron.checkpoint import WithoutOutput
from memcalc.code.megatron.mlp import FUSED_GATES
from memcalc.code.megatron.options import options
from memcalc.code.megatron.router import route
from memcalc.code.transformers.dropout import dropout
from memcalc.components.moe import Experts, GroupedAdapter, MoE
from memcalc.specs.model import Axis, shard
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.pointwise import like
from memcalc.tape.functional.shape import split_last, view
from memcalc.tape.tensor import Tensor


@runs(MoE)
def moe(ctx: Context, m: MoE, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden), normalised → the same."""
    if "moe" in options(ctx).recompute and ctx.settings.training:
        return checkpoint(ctx, lambda x: _moe(ctx, m, x), x)
    return _moe(ctx, m, x)


def _moe(ctx: Context, m: MoE, x: Tensor) -> Tensor:
    shared = shared_experts(ctx, m, x)
    seq, batch, hidden = x.shape
    flat = view(x, (Axis("tokens", seq.size * batch.size), hidden))
    probs, routing = route(ctx, m.gate, flat)
    if m.into_latent is not None:
        flat = parallel.plain(ctx, flat, parallel.parameters(ctx, m.into_latent), m.into_latent.outputs, "latent")
    send = dispatch.DISPATCHERS[options(ctx).dispatcher](ctx, m)
    with ctx.inside("experts"):
        rows, scores = send.permute(flat, probs, routing)
        del flat, probs, routing
        got, scores = send.send(rows, scores)
        returned = send.give_back(computed(ctx, m.experts, send, got, scores))
        out = send.unpermute(returned)
        del rows, got, scores, returned
    if m.from_latent is not None:
        out = parallel.plain(ctx, out, parallel.parameters(ctx, m.from_latent), m.from_latent.outputs, "output of experts")
    out = view(out, x.shape)
    return out if shared is None else F.add(out, shared, "experts + shared")


def shared_experts(ctx: Context, m: MoE, x: Tensor) -> Tensor | None:
    """What all tokens pass through, gated by a scalar where the model does."""
    if m.shared is None:
        return None
    expert, gate = m.shared, m.shared_gate

    def run(x: Tensor) -> Tensor:
        out = ctx.run(expert, x, m.shared_name)
        if gate is None:
            return out
        return F.mul(out, F.keeps_result(ctx.run(gate, x), "gate of shared expert"), "gated shared expert")

    if "shared_experts" in options(ctx).recompute and ctx.settings.training:
        return checkpoint(ctx, run, x)
    return run(x)


def computed(ctx: Context, m: Experts, send: dispatch.AllToAll | dispatch.AllGather, rows: Tensor, scores: Tensor) -> Tensor:
    """What this rank's experts say of the rows that they got, which whoever calls has, too (routed_experts_compute)."""
    ordered, by_row = send.sort(rows, scores)
    out = grouped_mlp(ctx, m, ordered, by_row)
    return send.unsort(out)


def grouped_mlp(ctx: Context, m: Experts, x: Tensor, scores: Tensor) -> Tensor:
    """Rows sorted by expert and their scores → rows: the first product saves them, the fused activation its output and the scores."""
    params = [ctx.parameter(weight) for weight in m.own_weights()]
    up, down = ([p for p, w in zip(params, m.own_weights(), strict=True) if ("down" in w.name or w.name.endswith("w2")) == last] for last in (False, True))
    half = shard(m.intermediate, ctx.settings.etp)
    wide = Axis(f"2 * {half.name}", 2 * half.size) if m.gated else half
    both = adapted(ctx, m, grouped(ctx, x, up, wide, "gate and up of rows" if m.gated else "up of rows"), x, up=True)
    del x

    def activate(both: Tensor, scores: Tensor) -> Tensor:
        if m.gated:
            return weighted_gate(both, scores, half, m.activation)
        return weighted(apply_activation(both, m.activation), scores)

    if "moe_act" in options(ctx).recompute and ctx.settings.training:
        kept = WithoutOutput(ctx)
        (hidden,) = kept.run(activate, both, scores)
        return kept.drop(adapted(ctx, m, grouped(ctx, hidden, down, m.hidden, "down of rows"), hidden, up=False))
    hidden = activate(both, scores)
    return adapted(ctx, m, grouped(ctx, hidden, down, m.hidden, "down of rows"), hidden, up=False)


def adapted(ctx: Context, m: Experts, result: Tensor, x: Tensor, *, up: bool) -> Tensor:
    """The result of a grouped product with that of the adapters beside it (LoraParallelLinear.forward)."""
    adapter = next((a for a in m.adapters if isinstance(a, GroupedAdapter) and (a.cut == "expert_column") == up), None)
    if adapter is None:
        return result
    with ctx.inside(adapter.module_name):
        a, b = (ctx.parameter(weight) for weight in adapter.own_weights())
        low = grouped(ctx, dropout(ctx, x, adapter.dropout), [a], adapter.r, "low-rank")
        update = grouped(ctx, low, [b], result.shape[-1], "product of factors")
        update = F.scale(update, "update")
        return F.add(result, update, "rows with update")


def weighted_gate(both: Tensor, scores: Tensor, half: Axis, activation: str) -> Tensor:
    """``act(gate) * up * score``: one kernel that saves its inputs, or operator by operator (weighted_bias_swiglu_impl)."""
    if activation not in (*FUSED_GATES, "clamped"):
        first, second = split_last(both, (half, half))
        gated = F.mul(apply_activation(first, activation), second, "gated rows")
        del first, second
        return weighted(gated, scores)
    out = both.tape.new((*both.shape[:-1], half), both.dtype, "gated rows")

    def backward(wants: tuple[bool, ...], g: Tensor, both: Tensor, scores: Tensor) -> tuple[Tensor | None, ...]:
        return like(both, "gradient of gate and up"), like(scores, "gradient of scores") if wants[1] else None

    both.tape.record(out, (both, scores), (both, scores), backward)
    return out


def weighted(rows: Tensor, scores: Tensor) -> Tensor:
    """``(rows * scores).to(rows.dtype)``: scores in fp32 make a wide product."""
    return F.cast(F.mul(rows, view(scores, (*scores.shape, Axis("1", 1))), "weighted rows"), rows.dtype)


def grouped(ctx: Context, x: Tensor, params: list[Tensor], out: Axis, name: str) -> Tensor:
    """A product for each expert over its rows (TEGroupedLinear). Saves the rows where a weight takes a gradient."""
    tape, fused, shape, dtype, fp8 = ctx.tape, options(ctx).fused_wgrad, x.shape, x.dtype, options(ctx).fp8
    read, kept_x = kept_input(x, params, fp8=fp8)
    y = tape.new((*x.shape[:-1], out), x.dtype, name)

    def backward(wants: tuple[bool, ...], g: Tensor, *kept: Tensor) -> tuple[Tensor | None, ...]:
        low = pair(g, f"gradient of {name}", LOW_GRADIENT) if fp8 else []
        of_x = tape.new(shape, dtype, f"gradient of input of {name}") if wants[0] else None
        grads = parallel.gradients(params, wants[1:], fused=fused)
        del low
        return (of_x, *grads)

    del read
    tape.record(y, (x, *params), parallel.saved(kept_x, params), backward)
    return y
