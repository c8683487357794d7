"""The front of a language model: token and position tables, and what all layers share (angles, masks, ALiBi)."""

from __future__ import annotations

from collections.abc import Callable

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.mask import make_masks
from memcalc.code.transformers.rotary import make_angles
from memcalc.components import Embedding
from memcalc.errors import InputError
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(Embedding)
def embed(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """ids (batch, seq) → (batch, seq, hidden); leaves what layers share in ``ctx.shared`` (LlamaModel.forward and its relatives)."""
    x = STYLES[m.style](ctx, m, ids)
    make_masks(ctx, x.dtype, always=m.masks)
    if m.alibi_heads:
        heads = Axis("heads", m.alibi_heads // ctx.settings.tp)
        ctx.shared["alibi"] = ctx.tape.new((ctx.batch, heads, Axis("keys", ctx.seq.size)), x.dtype, "alibi")
    for rotary in (m.rotary, m.local_rotary):
        if rotary is not None:
            make_angles(ctx, rotary, x.dtype)
    return x


def look_up(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Rows of the token table."""
    table = next(m.own_weights())
    return F.embedding(ids, ctx.parameter(table, has_gradient=m.tied), m.width, "inputs_embeds")


def positions(ctx: Context, m: Embedding) -> Tensor:
    """Rows of the position table, for one sequence.

    Raises:
        InputError: the sequences are longer than the table.
    """
    table = list(m.own_weights())[1]
    most = m.positions - m.reserved_positions
    if ctx.reaches(most + 1):
        raise InputError(f"the model has positions for {most} tokens, not for {ctx.seq.size}", where="seq_len")
    width = table.shape[1]
    rows = F.embedding(ctx.shared["position_ids"], ctx.parameter(table), width, "position_embeds")
    return F.view(rows, (Axis("one", 1), *rows.shape))


def number(ctx: Context) -> None:
    """Position ids, which the model's forward holds."""
    ctx.shared["position_ids"] = ctx.tape.new((ctx.seq,), "int64", "position_ids")


def decoder(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens alone, scaled where the model does (LlamaModel.forward, GemmaTextScaledWordEmbedding.forward)."""
    x = look_up(ctx, m, ids)
    if m.scaled:
        x = F.scale(x, "scaled inputs_embeds")
    number(ctx)
    return dropout(ctx, x, m.dropout)


def gpt2(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens and positions, which the model's forward holds both beside their sum (GPT2Model.forward)."""
    ctx.holds_output = False
    x = ctx.shared["inputs_embeds"] = look_up(ctx, m, ids)
    number(ctx)
    rows = ctx.shared["position_embeds"] = positions(ctx, m)
    return dropout(ctx, F.add(x, rows, "embeds"), m.dropout)


def opt(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens, to the layers' width where theirs is another, and positions counted from a mask of ones (OPTDecoder.forward)."""
    ctx.holds_output = False
    x = look_up(ctx, m, ids)
    ctx.shared["position mask"] = ctx.tape.new((ctx.batch, ctx.seq), ctx.settings.dtype, "position mask")
    number(ctx)
    if m.project is not None:
        x = ctx.run(m.project, x)
    ctx.shared["inputs_embeds"] = x
    rows = ctx.shared["position_embeds"] = positions(ctx, m)
    return F.add(x, rows, "embeds")


def bloom(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens, normalised by the model's forward, which holds them as the norm does (BloomModel.forward)."""
    ctx.holds_output = False
    x = look_up(ctx, m, ids)
    assert m.norm is not None
    return ctx.run(m.norm, x, "norm")


def bert(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """The sum of tokens, types and positions, normalised, in a module of its own (BertEmbeddings.forward)."""
    x = look_up(ctx, m, ids)
    if m.positions:
        number(ctx)
    if m.token_types:
        table = list(m.own_weights())[-1]
        types = ctx.tape.new((ctx.batch, ctx.seq), "int64", "token_type_ids")
        x = F.add(x, F.embedding(types, ctx.parameter(table), m.width, "token_type_embeds"), "embeds")
    if m.positions:
        x = F.add(x, positions(ctx, m), "embeds")
        del ctx.shared["position_ids"]
    if m.norm is not None:
        x = ctx.run(m.norm, x, "norm")
    x = dropout(ctx, x, m.dropout)
    return x if m.project is None else ctx.run(m.project, x)


STYLES: dict[str, Callable[[Context, Embedding, Tensor], Tensor]] = {"decoder": decoder, "gpt2": gpt2, "opt": opt, "bloom": bloom, "bert": bert}
"""The order of steps, by the name of the style."""
