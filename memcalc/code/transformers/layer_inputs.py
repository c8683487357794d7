"""Inputs that each layer has of its own."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.layer_inputs import INPUTS, InputTables, LayerInputs
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(InputTables)
def input_tables(ctx: Context, m: InputTables, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; rows of the table and a projection of x, summed, are left in ``ctx.shared``.

    Source: Gemma4TextModel.get_per_layer_inputs and project_per_layer_inputs; Gemma 3n's are alike.
    """
    ids = Tensor(ctx.tape, (ctx.batch, ctx.seq), "int64", None)  # the batch's own
    rows = F.scale(F.embedding(ids, ctx.parameter(next(m.own_weights())), m.proj.outputs, "rows for each layer"), "scaled rows")
    if m.outer:
        ctx.shared["rows for each layer"] = rows
    if m.outer == "rows and embeddings":
        ctx.shared["embeddings without images"] = ctx.tape.new(x.shape, x.dtype, "embeddings without images")
    small = m.norm.width
    whole = (ctx.batch, ctx.seq, Axis("num_hidden_layers", m.proj.outputs.size // small.size), small)
    h = ctx.run(m.proj, x, "per_layer_model_projection")
    h = F.scale_in_place(h) if m.in_place else F.scale(h, "scaled projection")
    h = ctx.run(m.norm, F.view(h, whole), "per_layer_projection_norm")
    ctx.shared[INPUTS] = F.scale(F.add(h, F.view(rows, whole), "projection + rows"), INPUTS)
    return x


def own_input(ctx: Context, length: Axis) -> Tensor:
    """A layer's share, (batch, tokens, small), of as many tokens at the end as it sees."""
    whole = ctx.shared[INPUTS]
    return F.narrow(whole, (ctx.batch, length, whole.shape[-1]))


def gated_input(ctx: Context, m: LayerInputs, x: Tensor, own: Tensor) -> Tensor:
    """``norm(proj(act(gate(x)) * own))`` (the end of Gemma4TextDecoderLayer.forward)."""
    h = apply_activation(ctx.run(m.per_layer_input_gate, x, "per_layer_input_gate"), m.activation)
    h = ctx.run(m.per_layer_projection, F.mul(h, own, "gated input"), "per_layer_projection")
    return ctx.run(m.norm, h, "post_per_layer_input_norm")
