"""The front of a language model: token and position tables, and what all layers share (angles, masks, ALiBi)."""

from __future__ import annotations

from collections.abc import Callable

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.mask import make_alibi, make_mask, make_masks, mask_name
from memcalc.code.transformers.prompt import leaf_of, make_prefix, prepend
from memcalc.code.transformers.rotary import make_angles
from memcalc.components import Embedding
from memcalc.components.embedding import TableAdapter
from memcalc.errors import InputError
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(Embedding)
def embed(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """ids (batch, seq) → (batch, seq, hidden); leaves what layers share in ``ctx.shared`` (LlamaModel.forward and its relatives)."""
    if m.prompt is not None and m.prompt.num_tensors:
        make_prefix(ctx, m.prompt)
    x = STYLES[m.style](ctx, m, ids)
    for other in m.others:
        x = ctx.run(other, x)
    if m.inputs is not None:
        x = ctx.run(m.inputs, x, "inputs")
    make_masks(ctx, x.dtype, always=m.masks, each=m.mask_each)
    if m.always_masked and ctx.settings.attention == "sdpa":
        make_mask(ctx, mask_name(None), x.dtype)
    if m.alibi is not None:
        make_alibi(ctx, m.alibi, x.dtype)
    for rotary in (m.rotary, m.local_rotary):
        if rotary is not None:
            make_angles(ctx, rotary, x.dtype)
    return x if m.streams is None else ctx.run(m.streams, x, "streams")


def look_up(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Rows of the token table, behind those of virtual tokens where there are any."""
    table = next(m.own_weights())
    rows = F.embedding(ids, ctx.parameter(table, has_gradient=m.tied), m.width, "inputs_embeds")
    if m.prompt is not None and not m.prompt.num_tensors:
        return prepend(ctx, m.prompt, rows)
    if m.adapter is not None and ctx.settings.leaf_inputs and ctx.settings.records:
        rows = leaf_of(rows)
    return rows if m.adapter is None else adapted(ctx, m.adapter, ids, rows)


def adapted(ctx: Context, m: TableAdapter, ids: Tensor, rows: Tensor) -> Tensor:
    """Rows with ``A[ids] B`` added to them in the wider dtype (peft/tuners/lora/layer.py, Embedding.forward)."""
    with ctx.inside("adapter"):
        a, b = (ctx.parameter(weight) for weight in m.own_weights())
        low = F.embedding(ids, a, Axis("r", m.r), "adapter's rows")
        update = F.scale(F.linear(low, b, None, m.width, "product"), "update")
        del low
    dtype = rows.dtype
    rows = F.add(rows, update, "with update")
    return F.cast(rows, dtype, "inputs_embeds")


def positions(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Rows of the position table.

    Raises:
        InputError: the sequences are longer than the table.
    """
    table = list(m.own_weights())[1]
    most = m.positions - m.reserved_positions
    if ctx.reaches(most + 1):
        raise InputError(f"the model has positions for {most} tokens, not for {ctx.seq.size}", where="seq_len")
    return F.embedding(ids, ctx.parameter(table), table.shape[1], "position_embeds")


def one_sequence(ctx: Context, name: str) -> Tensor:
    """Integers for the tokens of one sequence."""
    return ctx.tape.new((Axis("one", 1), ctx.seq), "int64", name)


def each_sequence(ctx: Context, name: str) -> Tensor:
    """Integers for all tokens."""
    return ctx.tape.new((ctx.batch, ctx.seq), "int64", name)


def hold(ctx: Context, x: Tensor, name: str) -> Tensor:
    """x, which the model's forward has a variable for until the last layer is through."""
    ctx.shared[name] = Tensor(ctx.tape, x.shape, x.dtype, x.storage)
    return x


def number(ctx: Context) -> None:
    """Position ids, which the model's forward holds."""
    ctx.shared["position_ids"] = ctx.tape.new((ctx.seq,), "int64", "position_ids")


def decoder(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens alone, scaled or normalised where the model does (LlamaModel.forward, GemmaTextScaledWordEmbedding.forward, NanoChatModel.forward)."""
    x = look_up(ctx, m, ids)
    if m.scaled:
        x = F.scale(x, "scaled inputs_embeds")
    if not ctx.settings.packed and (m.alibi is None or m.alibi.style != "table"):
        number(ctx)
    if m.norm is not None:
        ctx.holds_output = False
        if not ctx.settings.records or x.dtype != "float32":  # otherwise its backward keeps them
            hold(ctx, x, "inputs_embeds")
        x = ctx.run(m.norm, x, "norm")
    return dropout(ctx, x, m.dropout)


def gpt2(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens and positions, which the model's forward holds both beside their sum (GPT2Model.forward)."""
    ctx.holds_output = False
    x = hold(ctx, look_up(ctx, m, ids), "inputs_embeds")
    numbers = one_sequence(ctx, "position_ids")
    if not ctx.settings.records:  # in training the table's gradient needs them
        ctx.shared["position_ids"] = numbers
    rows = hold(ctx, positions(ctx, m, numbers), "position_embeds")
    return dropout(ctx, F.add(x, rows, "embeds"), m.dropout)


def opt(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens, to the layers' width where theirs is another, and positions counted from a mask of ones (OPTDecoder.forward)."""
    ctx.holds_output = False
    x = look_up(ctx, m, ids)
    ctx.shared["position mask"] = ctx.tape.new((ctx.batch, ctx.seq), ctx.settings.dtype, "position mask")
    ctx.shared["position_ids"] = each_sequence(ctx, "position_ids")
    rows = hold(ctx, positions(ctx, m, each_sequence(ctx, "offset position_ids")), "position_embeds")
    if m.project is not None:
        x = ctx.run(m.project, x)
    x = hold(ctx, x, "inputs_embeds")
    return F.add(x, rows, "embeds")


def bloom(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """Tokens, normalised by the model's forward, which holds them; in training the norm does so anyway (BloomModel.forward)."""
    ctx.holds_output = False
    x = look_up(ctx, m, ids)
    if not ctx.settings.records:
        x = hold(ctx, x, "inputs_embeds")
    assert m.norm is not None
    return ctx.run(m.norm, x, "norm")


def bert(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """The sum of tokens, types and positions, normalised, in a module of its own (BertEmbeddings.forward, RobertaEmbeddings.forward)."""
    numbers = each_sequence(ctx, "position_ids") if m.style == "roberta" else Tensor(ctx.tape, (Axis("one", 1), ctx.seq), "int64", None)
    if m.token_types:
        types = (each_sequence if m.style == "roberta" else one_sequence)(ctx, "token_type_ids")
        types = F.view(types, (ctx.batch, ctx.seq))
    x = look_up(ctx, m, ids)
    if m.token_types:
        table = list(m.own_weights())[-1]
        x = F.add(x, F.embedding(types, ctx.parameter(table), m.width, "token_type_embeds"), "embeds")
        del types
    if m.positions:
        x = F.add(x, positions(ctx, m, numbers), "embeds")
    if m.norm is not None:
        x = ctx.run(m.norm, x, "norm")
    x = dropout(ctx, x, m.dropout)
    return x if m.project is None else ctx.run(m.project, x)


def deberta(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """The sum of tokens, positions and types, normalised, times a mask (DebertaV2Embeddings.forward); who calls it holds token types."""
    types = each_sequence(ctx, "token_type_ids")
    x = look_up(ctx, m, ids)
    if m.positions:
        x = F.add(x, positions(ctx, m, Tensor(ctx.tape, (Axis("one", 1), ctx.seq), "int64", None)), "embeds")
    else:
        unused = ctx.tape.new(x.shape, x.dtype, "zeros for positions")
    if m.token_types:
        x = F.add(x, F.embedding(types, ctx.parameter(list(m.own_weights())[-1]), m.width, "token_type_embeds"), "embeds")
    else:
        ctx.shared["token_type_ids"] = types
    assert m.norm is not None
    x = F.mul(ctx.run(m.norm, x, "norm"), ctx.tape.new((ctx.batch, ctx.seq), x.dtype, "mask of ones"), "embeds of tokens")
    if not m.positions:
        del unused
    return dropout(ctx, x, m.dropout)


STYLES: dict[str, Callable[[Context, Embedding, Tensor], Tensor]] = {
    "decoder": decoder,
    "gpt2": gpt2,
    "opt": opt,
    "bloom": bloom,
    "bert": bert,
    "roberta": bert,
    "deberta": deberta,
}
"""The order of steps, by the name of the style."""
