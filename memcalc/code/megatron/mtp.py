"""Multi-token prediction on the last stage (megatron/core/transformer/multi_token_prediction.py, MultiTokenPredictionLayer and process_mtp_loss)."""

from __future__ import annotations

from memcalc.code.checkpoint import checkpoint
from memcalc.code.context import Context, runs
from memcalc.code.megatron import parallel
from memcalc.code.megatron.attention import gather_last
from memcalc.code.megatron.head import cross_entropy, output_layer
from memcalc.code.megatron.options import options
from memcalc.components.mtp import MultiTokenHead, PredictionModule
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Shape, Tensor


@runs(MultiTokenHead)
def multi_token_head(ctx: Context, m: MultiTokenHead, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden), normalised → a loss for each token. Each further token has logits and probabilities of its own."""
    hidden, parts = x, [x]
    for j, module in enumerate(m.modules):
        ids = ctx.tape.new((ctx.batch, ctx.seq), "int64", "shifted ids")
        embeddings = ctx.run(m.embedding, ids, "embedding")
        del ids
        with ctx.inside(f"modules/{j}"):
            hidden = predict(ctx, module, embeddings, hidden)
        parts.append(hidden)
        del embeddings
    shapes = [part.shape for part in parts]
    whole = join(parts, Axis(f"{x.shape[0].name} * {len(parts)}", x.shape[0].size * len(parts)))
    del parts, hidden
    views = cut(whole, shapes)
    del whole, x
    losses = [losses_of(ctx, m, view) for view in (*views[1:], views[0])]
    total = losses[-1]
    for loss in losses[:-1]:
        total = attach(total, loss)
    return total


def predict(ctx: Context, m: PredictionModule, embeddings: Tensor, hidden: Tensor) -> Tensor:
    """The next hidden states; the projection is cut by columns, gathered, and cut along the sequence again."""

    def run(embeddings: Tensor, hidden: Tensor) -> Tensor:
        e, h = ctx.run(m.enorm, embeddings, "enorm"), ctx.run(m.hnorm, hidden, "hnorm")
        both = F.cat((e, h), m.eh_proj.inputs, "embedding and hidden states")
        del e, h
        out = ctx.run(m.eh_proj, both)
        del both
        if ctx.has_tp:
            out = gather_last(out, m.eh_proj.outputs)
        if parallel.is_split(ctx):
            out = part_of(ctx, out)
        return ctx.run(m.norm, ctx.run(m.layer, out, "layer"), "norm")

    if options(ctx).recompute_full and ctx.settings.training:
        return checkpoint(ctx, run, embeddings, hidden)
    return run(embeddings, hidden)


def part_of(ctx: Context, x: Tensor) -> Tensor:
    """This rank's part of the sequence, a view; the gradient is gathered (scatter_to_sequence_parallel_region)."""
    out = Tensor(x.tape, (parallel.local_seq(ctx), *x.shape[1:]), x.dtype, x.storage)
    whole = x.shape
    x.tape.record(out, (x,), (), lambda wants, g: (g.tape.new(whole, g.dtype, "gathered gradient"),))
    return out


def join(parts: list[Tensor], rows: Axis) -> Tensor:
    """``torch.cat(parts, dim=0)``: its gradient is handed out in views."""
    first = parts[0]
    out, shapes = first.tape.new((rows, *first.shape[1:]), first.dtype, "hidden states of all predictions"), [p.shape for p in parts]
    first.tape.record(out, parts, (), lambda wants, g: tuple(Tensor(g.tape, s, g.dtype, g.storage) for s in shapes))
    return out


def cut(x: Tensor, shapes: list[Shape]) -> list[Tensor]:
    """``x.chunk(n, dim=0)``: views; their gradients are concatenated."""
    parts, whole, dtype, tape = [Tensor(x.tape, s, x.dtype, x.storage) for s in shapes], x.shape, x.dtype, x.tape
    tape.record(parts, (x,), (), lambda wants, *gs: (tape.new(whole, dtype, "gradient of all predictions"),))
    return parts


def losses_of(ctx: Context, m: MultiTokenHead, x: Tensor) -> Tensor:
    """A loss for each token; the logits go when it is there."""
    with ctx.inside("head"):
        return cross_entropy(ctx, output_layer(ctx, m.head, x))


def attach(x: Tensor, loss: Tensor) -> Tensor:
    """x, with a gradient for the other loss when its own arrives (MTPLossAutoScaler)."""
    out = Tensor(x.tape, x.shape, x.dtype, x.storage)
    shape = loss.shape
    x.tape.record(out, (x, loss), (), lambda wants, g: (g, g.tape.new(shape, "float32", "gradient of a further loss")))
    return out
