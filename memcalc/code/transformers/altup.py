"""Gemma 3n's layers, and what leads into their streams and out of them. Streams stand in the first axis."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.embedding import hold
from memcalc.code.transformers.layer_inputs import gated_input, own_input
from memcalc.components.altup import AltUp, AltUpLayer, JoinStreams, Laurel, OtherTokens, SparseGateMLP, SpreadStreams
from memcalc.components.linear import Linear
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.routing import add_in_place, clamp, div
from memcalc.tape.functional.statistics import mean_of_first, std
from memcalc.tape.tensor import Tensor


@runs(OtherTokens)
def other_tokens(ctx: Context, m: OtherTokens, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same with rows of this table where ids are of its kind; all ids are looked up (Gemma3nModel.forward)."""
    ids = ctx.tape.new((ctx.batch, ctx.seq), "int64", "ids of this kind")
    rows = F.embedding(ids, ctx.parameter(next(m.own_weights())), m.embedding_projection.inputs, "rows")
    h = ctx.run(m.embedding_projection, ctx.run(m.hard_embedding_norm, rows, "hard_embedding_norm"))
    h = hold(ctx, F.cast(ctx.run(m.norm, h, "embedding_post_projection_norm"), x.dtype), m.name)
    return where(ctx.tape.new((ctx.batch, ctx.seq), "bool", "places of this kind"), h, x)


def where(mask: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``torch.where(mask, x, y)``. Saves the mask; backward fills a gradient for each."""
    out = F.like(x, "embeddings")
    x.tape.record(out, (x, y), (mask,), lambda wants, g, mask: tuple(F.like(g, "gradient of choice") if w else None for w in wants))
    return out


@runs(SpreadStreams)
def spread(ctx: Context, m: SpreadStreams, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → (streams, batch, seq, hidden) (the beginning of Gemma3nTextModel.forward, which holds the list that it stacks)."""
    target = F.inverse_root(F.mean(F.pow2(x)), "magnitude")
    found = [x]
    for i, proj in enumerate(m.altup_projections):
        projected = project(ctx, proj, x, f"altup_projections/{i}")
        found.append(hold(ctx, as_large(projected, target), f"stream {i + 1} before layers"))
        if not ctx.settings.records:  # in training they are saved
            hold(ctx, x, "inputs_embeds")
            hold(ctx, projected, "altup_proj")
    ctx.holds_output = False
    return scan.stack(found, (Axis("altup_num_inputs", len(found)), *x.shape), "streams")


@runs(JoinStreams)
def join(ctx: Context, m: JoinStreams, x: Tensor) -> Tensor:
    """x (streams, batch, seq, hidden) → (batch, seq, hidden) (the end of Gemma3nTextModel.forward)."""
    one = x.shape[1:]
    target = F.inverse_root(F.mean(F.pow2(F.narrow(x, one))), "magnitude")
    found = [F.narrow(x, one)]
    for i, proj in enumerate(m.altup_unembed_projections):
        found.append(as_large(project(ctx, proj, F.narrow(x, one), f"altup_unembed_projections/{i}"), target))
    return mean_of_first(scan.stack(found, x.shape, "streams"), "mean of streams")


def project(ctx: Context, proj: Linear, x: Tensor, name: str) -> Tensor:
    """A projection of x, in its dtype."""
    return F.cast(ctx.run(proj, x, name), x.dtype, "projected stream")


def as_large(x: Tensor, target: Tensor) -> Tensor:
    """x with a root mean square of `target`."""
    magnitude = F.keeps_result(clamp(F.mean(F.pow2(x)), "mean square within bounds", bounds=1), "magnitude")
    return div(F.mul(x, target, "projected stream * magnitude"), magnitude, "stream")


@runs(Laurel)
def laurel(ctx: Context, m: Laurel, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (Gemma3nTextLaurelBlock.forward)."""
    h = ctx.run(m.linear_right, ctx.run(m.linear_left, x))
    normed = ctx.run(m.post_laurel_norm, h, "post_laurel_norm")
    return F.add(x, normed, "x + low rank")


@runs(SparseGateMLP)
def sparse_mlp(ctx: Context, m: SparseGateMLP, x: Tensor) -> Tensor:
    """``down(act(relu(gate(x) - cutoff)) * up(x))`` (Gemma3nTextMLP.forward), with variables for the factors."""
    assert m.up is not None
    gate = above_cutoff(ctx.run(m.gate, x))
    active = apply_activation(gate, m.activation)
    up = ctx.run(m.up, x)
    out = ctx.run(m.down, F.mul(active, up, "gate * up"))
    del gate, active, up
    return out


def above_cutoff(gate: Tensor) -> Tensor:
    """What is above the mean and so many standard deviations of a row (_gaussian_topk)."""
    mean, deviation = F.mean(gate), std(gate)
    cutoff = F.add(mean, F.scale(deviation, "deviation * multiplier"), "cutoff")
    return F.keeps_result(F.sub(gate, cutoff, "gate - cutoff"), "relu")


@runs(AltUpLayer)
def layer(ctx: Context, m: AltUpLayer, x: Tensor) -> Tensor:
    """x (streams, batch, seq, hidden) → the same (Gemma3nTextDecoderLayer.forward, which has variables for all that it makes)."""
    with ctx.inside("altup"):
        predictions = predict(ctx, m.altup, x)
    active = F.narrow(predictions, x.shape[1:])
    h = ctx.run(m.norm, active, "input_layernorm")
    low = ctx.run(m.laurel, h, "laurel")
    held = ctx.probabilities = []
    attended = ctx.run(m.norm, ctx.run(m.self_attn, h, "self_attn"), "post_attention_layernorm")
    ctx.probabilities = None
    gated = F.add(active, attended, "active + attention")
    both = F.scale(F.add(gated, low, "with low rank"), "scaled sum")
    h = ctx.run(m.norm, both, "pre_feedforward_layernorm")
    wide = ctx.run(m.mlp, h, "mlp")
    normed = ctx.run(m.norm, wide, "post_feedforward_layernorm")
    given = F.add(both, normed, "activated")
    held += [predictions, h, low, attended, gated, both, wide, normed]
    with ctx.inside("altup"):
        corrected = correct(ctx, m.altup, predictions, given)
        first = F.clone(F.narrow(corrected, given.shape), "first stream")
        if m.altup.scaled:
            first = F.mul(first, ctx.parameter(next(m.altup.own_weights())), "scaled first stream")
    first = gated_input(ctx, m.inputs, first, own_input(ctx, ctx.seq))
    others = (Axis("altup_num_inputs - 1", x.shape[0].size - 1), *given.shape)
    corrected = add_to_part(corrected, first, others)
    corrected = scan.put(corrected, F.narrow(corrected, others))
    held.clear()
    del predictions, active, low, attended, gated, both, wide, normed, given
    return corrected


def modalities(ctx: Context, m: AltUp, x: Tensor) -> Tensor:
    """One number for each stream (compute_router_modalities)."""
    normed = F.scale(ctx.run(m.router_norm, x, "router_norm"), "scaled router input")
    routed = F.cast(ctx.run(m.modality_router, normed), "float32", "routed in fp32")
    return F.cast(F.tanh(routed), x.dtype, "modalities")


def predict(ctx: Context, m: AltUp, x: Tensor) -> Tensor:
    """Each stream as a sum over all (Gemma3nTextAltUp.predict)."""
    found = modalities(ctx, m, F.narrow(x, x.shape[1:]))
    count = m.streams
    square = F.split_heads(ctx.run(m.prediction_coefs, found), (*found.shape[:-1], count, Axis("altup_num_inputs", count.size)))
    mixed = scan.contract(F.view(x, (*x.shape[1:], count)), square, (*x.shape[1:], count), "mixed streams", copies="g")
    mixed = add_in_place(F.cast(F.view(mixed, x.shape), x.dtype), x)
    return F.clone(mixed, "predictions")


def correct(ctx: Context, m: AltUp, predictions: Tensor, given: Tensor) -> Tensor:
    """Predictions and what the layer's output differs from the first, weighted for each (Gemma3nTextAltUp.correct)."""
    found = modalities(ctx, m, given)
    innovation = F.repeat(F.sub(given, F.narrow(predictions, given.shape), "innovation"), predictions.shape, "innovation of each stream")
    weights = F.add_scalar(ctx.run(m.correction_coefs, found), "coefficients + 1")
    corrected = F.mul(innovation, F.view(weights, (*predictions.shape[:-1], Axis("1", 1))), "weighted innovation")
    return add_in_place(corrected, predictions)


def add_to_part(base: Tensor, x: Tensor, part: tuple[Axis, ...]) -> Tensor:
    """``base[1:] += x``: base's storage under a new node.

    Backward copies the whole gradient and that of the part, which it sums over what x was broadcast to (CopySlices).
    """
    out = Tensor(base.tape, base.shape, base.dtype, base.storage)

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        copy = F.like(g, "gradient copied")
        of_part = g.tape.new(part, g.dtype, "gradient of part")
        of_x = g.tape.new(x_shape, g.dtype, "sum over streams")
        del of_part
        return copy, of_x

    x_shape = x.shape
    base.tape.record(out, (base, x), (), backward)
    return out
