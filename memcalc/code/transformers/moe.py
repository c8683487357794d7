"""Mixtures of experts as transformers runs them by default: rows sorted by expert, one grouped product for all experts.

``grouped_mm`` is what ``experts_implementation`` means where nothing is said (integrations/moe.py, grouped_mm_experts_forward). It works on
tokens × top_k rows in all, however they fall on the experts, so nothing is assumed of the routing.
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers import (
    liger,
    sparse_mixer,  # noqa: F401 (it registers its router)
)
from memcalc.code.transformers.expert_parallel import Exchange, is_spread
from memcalc.code.transformers.router import route
from memcalc.components.moe import Experts, MoE
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.shape import split_last
from memcalc.tape.tensor import Axis, Tensor


@runs(MoE)
def moe(ctx: Context, m: MoE, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MixtralSparseMoeBlock, Qwen2MoeSparseMoeBlock, DeepseekV3MoE and their relatives)."""
    tokens = Axis("tokens", ctx.batch.size * ctx.seq.size)
    flat = F.view(x, (tokens, x.shape[-1]))
    shared = ctx.run(m.shared, x, m.shared_name) if m.shared is not None and m.order == "shared first" else None
    _logits, weights, indices, _loss = route(ctx, m.gate, flat)
    if m.into_latent is not None:
        flat = ctx.run(m.into_latent, flat)
    with ctx.inside("experts"):
        out = ctx.left(run_experts(ctx, m.experts, ctx.entered(flat), weights, indices))
    out = F.view(out if m.from_latent is None else ctx.run(m.from_latent, out), x.shape)
    del flat
    if m.shared is not None and shared is None:
        shared = ctx.run(m.shared, x, m.shared_name)
    if m.shared_gate is not None and shared is not None:
        shared = F.mul(shared, F.keeps_result(ctx.run(m.shared_gate, x), "gate of shared expert"), "gated shared expert")
    return out if shared is None else F.add(out, shared, "experts + shared")


def run_experts(ctx: Context, m: Experts, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
    """x (tokens, hidden), weights and indices (tokens, top_k) → (tokens, hidden) in x's dtype, by this rank's experts or those of several."""
    if ctx.settings.liger.experts and not is_spread(ctx):
        return liger.experts(x, weights, indices, (weight_of(ctx, m, f"{m.first}_proj"), weight_of(ctx, m, "down_proj")), m.intermediate)
    if not is_spread(ctx):
        return grouped_experts(ctx, m, x, weights, indices)
    exchange = Exchange(ctx, x, weights, indices)
    rows = exchange.dispatch(x)
    answers = grouped_experts(ctx, m, *rows, spread=True)
    return exchange.combine(answers)


def grouped_experts(ctx: Context, m: Experts, x: Tensor, weights: Tensor, indices: Tensor, *, spread: bool = False) -> Tensor:
    """As `run_experts`, all by this rank's experts, one of which a row has where they are spread over ranks; then rows of others are masked.

    Held to the end beside what is saved: the sorted ids, and their count in another dtype on the way to the offsets.
    """
    tape, tokens, top_k = ctx.tape, x.shape[0], indices.shape[1]
    pairs = factors(ctx, m)
    rows = Axis("tokens * top_k", tokens.size * top_k.size)
    ids, order = tape.new((rows,), "int64", "sorted expert ids"), tape.new((rows,), "int64", "order")
    selected = routing.index_rows(x, tape.new((rows,), "int64", "token of each row"), rows, "rows by expert")
    scores = routing.index_rows(F.view(weights, (rows,)), order, rows, "scores by expert")
    held = [tape.new((rows,), "int32", "expert ids to count"), tape.new((m.count,), "int32", "rows per expert")]
    offsets = tape.new((m.count,), "int32", "offsets")
    mask = tape.new((rows, Axis("1", 1)), "bool", "rows of other ranks") if spread else None
    bias = bias_of_rows(ctx, m, ids, m.first)
    selected = selected if mask is None else routing.masked_fill_in_place(selected, mask)
    out = masked(added(project(m, selected, offsets, whole_weight(ctx, m, m.first, pairs), m.first), bias), mask)
    out = gate(m, out)
    bias = bias_of_rows(ctx, m, ids, "down")
    out = masked(added(project(m, out, offsets, whole_weight(ctx, m, "down", pairs), "down"), bias), mask)
    weighted = F.mul(out, F.view(scores, (rows, Axis("1", 1))), "weighted rows")
    inverse = tape.new((rows,), "int64", "inverse order")
    tape.new((rows,), "int64", "positions")
    weighted = routing.index_rows(weighted, inverse, rows, "weighted rows in order")
    total = routing.sum_of_choices(weighted, tokens, top_k, "sum over experts")
    total = F.cast(total, x.dtype, "output of experts")
    del bias, held, pairs
    return total


def weight_of(ctx: Context, m: Experts, name: str) -> Tensor:
    """One of the stacked weights, as this rank holds it."""
    return ctx.parameter(next(w for w in m.own_weights() if w.name == name))


Pairs = dict[str, tuple[Tensor, ...]]
"""Factors by the name of the weight that they adapt; with the merged weight once there is one, which is cached until the experts are through."""


def factors(ctx: Context, m: Experts) -> Pairs:
    """Both factors of every adapter in the weight's dtype, expert by expert (peft/tuners/lora/layer.py, ParamWrapper.get_delta_factors).

    Wrappers stand inside each other, the last weight's outermost; each tries the merged weight out when it registers (register_parametrization).
    """
    pairs: Pairs = {}
    for adapter in reversed(m.adapters):
        weight = weight_of(ctx, m, adapter.parameter)
        with ctx.inside(adapter.module_name):
            a, b = (ctx.parameter(w) for w in adapter.own_weights())
            outer = F.cast(F.split_heads(b, (m.count, adapter.outputs, adapter.r)), weight.dtype, "factor of outputs")
            inner = F.cast(F.view(a, (m.count, adapter.r, adapter.inputs)), weight.dtype, "factor of inputs")
            ctx.tape.new(weight.shape, weight.dtype, "merged weight, tried out")
        pairs[adapter.parameter] = (outer, inner)
    return pairs


def merged(weight: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
    """``baddbmm(weight, outer, inner)``: a whole weight, which its product then saves. Saves both factors."""
    out = F.like(weight, "merged weight")
    kinds = ((outer.shape, outer.dtype), (inner.shape, inner.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(g.tape.new(*kind, "gradient of factor") if want else None for want, kind in zip(wants, kinds, strict=True))

    out.tape.record(out, (outer, inner), (outer, inner), backward)
    return out


def bias_of_rows(ctx: Context, m: Experts, ids: Tensor, which: str) -> Tensor | None:
    """The expert's bias, picked for each row."""
    return routing.index_rows(weight_of(ctx, m, f"{which}_proj_bias"), ids, ids.shape[0], f"{which} bias of rows") if m.bias else None


def whole_weight(ctx: Context, m: Experts, which: str, pairs: Pairs) -> Tensor:
    """One of the two stacked weights, with its adapter's product added where it has one."""
    name = f"{which}_proj"
    weight = weight_of(ctx, m, name)
    if name in pairs:
        weight = merged(weight, *pairs[name])
        pairs[name] = (*pairs[name], weight)
    return weight


def project(m: Experts, x: Tensor, offsets: Tensor, weight: Tensor, which: str) -> Tensor:
    """One of the two grouped products."""
    return routing.grouped_mm(x, weight, offsets, weight.shape[2 if m.transposed else 1], f"{which} of rows")


def added(x: Tensor, bias: Tensor | None) -> Tensor:
    """The bias added in place, where there is one."""
    return x if bias is None else routing.add_in_place(x, bias)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros in the rows of other ranks, which the product left as they were."""
    return x if mask is None else F.masked_fill(x, mask, "masked rows")


def gate(m: Experts, both: Tensor) -> Tensor:
    """``act(gate) * up`` of halves, or gpt-oss's clamped gate of interleaved columns (GptOssExperts._apply_gate); without gates ``act(up)``."""
    if not m.gated:
        return apply_activation(both, m.activation)
    half = Axis(m.intermediate.name, both.shape[-1].size // 2)
    if m.activation != "clamped":
        gate, up = split_last(both, (half, half))
        return F.mul(apply_activation(gate, m.activation), up, "gate * up")
    gate = F.slice_last(both, half)
    up = F.slice_last(both, half)
    del both
    gate = routing.clamp(gate, "clamped gate", bounds=1)
    up = routing.clamp(up, "clamped up")
    glu = F.mul(gate, F.keeps_result(F.scale(gate, "alpha * gate"), "sigmoid"), "gate * sigmoid")
    return F.mul(F.add_scalar(up, "up + 1"), glu, "gated")
