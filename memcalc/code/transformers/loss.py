"""Other losses than torch's.

In chunks, each run again in backward (TRL); in pieces of the sequence (torchtune); with gradients made in forward (Liger); without logits (cut
cross-entropy); or with gradients made of the logits in place.
"""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context
from memcalc.code.transformers.head import logits_of
from memcalc.components import Head, Linear
from memcalc.components.lora import SavedLinear
from memcalc.errors import InputError
from memcalc.formulas.loss import liger_chunk
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.matmul import cast_weight, under_autocast
from memcalc.tape.functional.scan import split_into
from memcalc.tape.span import minimum
from memcalc.tape.tape import Leaf
from memcalc.tape.tensor import Shape, Tensor
from memcalc.units import ceil_div

CHUNK = 256
"""Tokens whose logits TRL makes at once (sft_trainer.py, ``_CHUNKED_LM_HEAD_CHUNK_SIZE``)."""

NUM_PIECES = 8
"""Pieces of the sequence that torchtune takes the head's output in (``num_output_chunks`` of CEWithChunkedOutputLoss)."""


def weight_of(ctx: Context, m: Head) -> Tensor:
    """The head's weight, which these losses take past its module.

    Raises:
        InputError: the head is adapted, or has a bias.
    """
    if type(m.proj) not in (Linear, SavedLinear) or m.proj.bias:
        raise InputError(f"loss {ctx.settings.loss} takes the head's weight as it is: none with an adapter, a bias or a cast of its own", where="loss")
    with ctx.inside(m.proj.module_name):
        return ctx.parameter(next(m.proj.own_weights()))


# ---------------------------------------------------------------------- TRL
def chunked(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss (TRL 1.10, trainer/sft_trainer.py, ``_chunked_cross_entropy_loss``, its default until 1.15).

    Tokens are put in order, those with a label first, and 256 at a time go through the head in fp32, under a checkpoint: the whole weight
    is cast anew for each chunk, and its gradient made in fp32. Of all chunks the first is run, and one of the others, which all are alike.
    """
    tape, weight = ctx.tape, weight_of(ctx, m)
    num = ctx.batch.size * (ctx.seq.size - 1)
    tokens, hidden = Axis("batch * (seq_len - 1)", num), x.shape[-1]
    x = F.narrow(x, (ctx.batch, Axis("seq_len - 1", ctx.seq.size - 1), hidden))
    several = not ctx.has_one_sequence
    x = F.clone(x, "shifted hidden states") if several else x
    order = tape.new((tokens,), "int64", "order of tokens")
    x = F.index(F.view(x, (tokens, hidden)), (tokens, hidden), "hidden states in order")
    labels = tape.new((tokens,), "int64", "labels in order")
    rows = Axis("chunk", minimum(num, CHUNK))
    with tape.no_grad():
        loss = _chunk(m, _part(x, (rows, hidden)), Tensor(tape, weight.shape, weight.dtype, None), labels)
    repeats = _exceeds(num, CHUNK)
    place = ctx.place()

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, order: Tensor, labels: Tensor) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None, None]
        with ctx.at(place):
            for _ in range(1 + repeats):
                _chunk_back(m, (rows, hidden), (x, weight, labels), wants, grads)
        return tuple(grads)

    tape.record(loss, (x, weight), (x, order, labels), backward)
    return loss


def _chunk(m: Head, x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """Logits of some tokens in fp32, their loss, and on the way how many are right and how sure they are (``_chunk``)."""
    logits = F.linear(
        F.cast(x, "float32", "hidden states in fp32"), under_autocast(F.cast(weight, "float32", "weight in fp32")), None, weight.shape[0], "logits"
    )
    if m.scaled:
        logits = F.scale(logits, "scaled logits")
    if m.softcap is not None:
        logits = F.scale(F.tanh(F.scale(logits, "logits / cap")), "capped logits")
    log_probs = F.log_softmax(F.cast(logits, "float32", "logits in fp32"))
    loss = F.nll_loss(log_probs, labels)
    F.mul(F.keeps_result(log_probs, "probabilities"), log_probs, "of entropy")
    return loss


def _chunk_back(m: Head, shape: Shape, given: tuple[Tensor, Tensor, Tensor], wants: tuple[bool, ...], grads: list[Tensor | None]) -> None:
    """A chunk runs again and back; its gradients are added to those of the chunks before."""
    (x, weight, labels), tape = given, given[0].tape
    leaves = [Leaf("chunk", keeps=True), Leaf("weight", keeps=True)]
    inputs = [_part(x, shape), Tensor(tape, weight.shape, weight.dtype, None)]
    for tensor, leaf, want in zip(inputs, leaves, wants, strict=True):
        if want:
            tensor.requires_grad, tensor.node = True, leaf
    begin = len(tape.nodes)
    with tape.enable_grad():
        loss = _chunk(m, inputs[0], inputs[1], labels)
    edge = (loss.node, loss.index) if loss.node is not None else None
    del inputs, tensor
    tape.backward(edge, [tape.new((), loss.dtype, "gradient of loss")], since=begin)
    _add(grads, 1, leaves[1].grads.pop())
    own = leaves[0].grads.pop()
    if own is not None:
        whole = tape.new(x.shape, own.dtype, "gradient of slice")
        del own
        _add(grads, 0, whole)


def _add(grads: list[Tensor | None], i: int, new: Tensor | None) -> None:
    before = grads[i]
    grads[i] = new if before is None or new is None else new.tape.new(new.shape, new.dtype, "sum of gradients")


def _part(x: Tensor, shape: Shape) -> Tensor:
    return Tensor(x.tape, shape, x.dtype, x.storage)


def _exceeds(num: Any, limit: int) -> bool:
    found = num > limit
    if isinstance(found, bool):
        return found
    if found.all() or not found.any():
        return bool(found.all())
    raise InputError(f"an array of batches must not cross {limit} tokens", where="seq_len")


# ---------------------------------------------------------------------- torchtune
def chunked_output(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, through the head in pieces of the sequence.

    The logits of all pieces are there together, in the model's dtype; what is fp32 of them, and their gradients, is there piece by piece, but
    each piece's log-softmax, which waits for backward.

    Source: torchtune/modules/transformer.py, ``chunked_output``, and modules/loss/ce_chunked_output_loss.py, ``CEWithChunkedOutputLoss``; LitGPT's
    ``lm_head_chunk_size`` and ``chunked_cross_entropy``, which does not cast.
    """
    rows = Axis(f"seq_len / {NUM_PIECES}", -(-ctx.seq.size // NUM_PIECES))
    pieces = split_into(x, [(ctx.batch, rows, x.shape[-1])] * NUM_PIECES)
    del x
    logits = [logits_of(ctx, m, piece) for piece in pieces]
    del pieces
    loss: Tensor | None = None
    for i in range(NUM_PIECES):
        one = _loss_of(ctx, logits[i], ctx.tape.new((ctx.batch, rows), "int64", "labels of a piece"))
        loss = one if loss is None else F.add(loss, one, "loss so far")
    assert loss is not None
    return loss


def _loss_of(ctx: Context, logits: Tensor, labels: Tensor) -> Tensor:
    wide = F.cast(logits, "float32", "logits in fp32") if ctx.settings.upcast_logits else logits
    return F.nll_loss(F.log_softmax(wide), labels)


# ---------------------------------------------------------------------- Liger
def fused_linear(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss (liger_kernel/ops/fused_linear_cross_entropy.py, 0.8.5).

    Forward makes both gradients: of the hidden states and, where it takes one, of the weight; logits of one chunk of tokens exist at a time,
    in a buffer that all chunks use, and the kernel turns them into their gradient in place. Backward hands both on.
    """
    tape, weight, hidden = ctx.tape, weight_of(ctx, m), x.shape[-1]
    tokens = Axis("batch * seq_len", ctx.batch.size * ctx.seq.size)
    several = ctx.batch.size > 1
    padded = tape.new((Axis("batch", ctx.batch.size * several), Axis("seq_len + 1", ctx.seq.size + 1)), "int64", "padded labels")
    target = tape.new((ctx.batch, Axis("seq_len", ctx.seq.size + 1 - several)), "int64", "shifted labels")
    flat = F.view(x, (tokens, hidden))
    of_x = F.like(flat, "gradient of hidden states")
    saves = [of_x]
    if weight.requires_grad:
        saves.append(tape.new(weight.shape, weight.dtype, "gradient of weight"))
    losses = tape.new((tokens,), "float32", "losses")
    mask = tape.new((tokens,), "bool", "labelled tokens")
    with tape.no_grad():
        (_fused_chunk if x.dtype == weight.dtype == (tape.autocast or x.dtype) else _fused_chunks_cast)(ctx, m, flat, weight)
    loss = tape.new((), "float32", "loss")
    del losses, mask, padded, target, of_x
    kinds = [(t.shape, t.dtype) for t in saves]

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        given = iter(zip(saved, kinds, strict=True))
        return tuple(_handed_on(*next(given)) if want else None for want in wants)

    tape.record(loss, (flat, weight), saves, backward)
    return loss


def _fused_chunk(ctx: Context, m: Head, x: Tensor, weight: Tensor) -> None:
    """One chunk's logits, in a buffer that all use; in fp32 its part of the weight's gradient is made beside the sum, otherwise added to it at once."""
    rows = _rows_of_chunk(ctx, x, weight)
    logits = ctx.tape.new((rows, weight.shape[0]), x.dtype, "logits of a chunk")
    if weight.requires_grad and weight.dtype == "float32":
        ctx.tape.new(weight.shape, weight.dtype, "gradient of weight, of a chunk")
    del logits


def _fused_chunks_cast(ctx: Context, m: Head, x: Tensor, weight: Tensor) -> None:
    """Two chunks, the second of which all others are like, under autocast in another dtype than that of x or the weight.

    The product that makes logits casts the transposed weight anew each time; that which makes the gradient of x casts the weight, which autocast keeps
    where it takes a gradient.
    """
    tape, rows = ctx.tape, _rows_of_chunk(ctx, x, weight)
    compute, hidden = tape.autocast or x.dtype, x.shape[-1]
    for _ in range(2):
        whole = tape.new(weight.shape, compute, "transposed weight, cast") if weight.dtype != compute else None
        chunk = tape.new((rows, hidden), compute, "hidden states of a chunk, cast") if x.dtype != compute else None
        logits = tape.new((rows, weight.shape[0]), compute, "logits of a chunk")
        del whole, chunk
        again = cast_weight(weight, f"{m.proj.name}/weight")
        tape.new((rows, hidden), compute, "gradient of a chunk")
        del again, logits


def _rows_of_chunk(ctx: Context, x: Tensor, weight: Tensor) -> Axis:
    return Axis("chunk", liger_chunk(x.shape[0].size, hidden=x.shape[-1].size, vocab=weight.shape[0].size, budget=ctx.settings.liger.chunk))


def _handed_on(saved: Tensor, kind: tuple[Shape, str]) -> Tensor:
    """A gradient that forward made, under the name that it has from here on."""
    assert saved.storage is not None
    saved.storage.drop()
    return saved.tape.new(*kind, "gradient from forward")


# ---------------------------------------------------------------------- cut
ROWS, COLUMNS = 128, 64
"""Of a block of gradients that has a lock (cut_cross_entropy/cce_backward.py)."""


def cut_cross_entropy(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, without logits (apple/ml-cross-entropy, cut_cross_entropy/cce.py, ``LinearCrossEntropyFunction``).

    They exist block by block inside a kernel, in forward and again in backward. Saved are x, the weight, the log-sum-exp of each labelled token, and the
    mean logit of each word, by which backward puts blocks in order.
    """
    tape, vocab = ctx.tape, m.proj.outputs
    weight = cast_weight(weight_of(ctx, m), f"{m.proj.name}/weight")
    tokens, hidden = Axis("batch * seq_len", ctx.batch.size * ctx.seq.size), x.shape[-1]
    labelled = Axis("batch * (seq_len - 1)", ctx.batch.size * (ctx.seq.size - 1))
    flat = under_autocast(F.view(x, (tokens, hidden)))
    places = tape.new((labelled,), "int32", "places of labelled tokens")
    sums = tape.new((labelled,), "float32", "log-sum-exp")
    means = tape.new((vocab,), "float32", "mean logits")
    losses = tape.new((labelled,), "float32", "losses")
    loss = tape.new((), "float32", "loss")
    del losses
    kinds, columns = ((flat.shape, flat.dtype), (weight.shape, weight.dtype)), ceil_div(hidden.size, COLUMNS)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        order = tape.new((vocab,), "int32", "order of blocks")
        made = [tape.new(*kind, "gradient of operand") if want else None for want, kind in zip(wants, kinds, strict=True)]
        locks = [tape.new((Axis("locks", ceil_div(kind[0][0].size, ROWS) * columns),), "int32", "locks") for kind in kinds]
        del order, locks
        return tuple(made)

    tape.record(loss, (flat, weight), (flat, weight, sums, places, means), backward)
    return loss


# ---------------------------------------------------------------------- in place
def in_place(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss of whole logits by a kernel that turns them into their gradient in place (Unsloth's, fms-acceleration's FOAK).

    Around it transformers 4 up to 4.44 (modeling_llama.py, ``LlamaForCausalLM.forward``): logits are cast to fp32, and those of all tokens but the
    last copied (``.contiguous()``). The kernel saves that copy and a row's log-sum-exp (unsloth/kernels/cross_entropy_loss.py).
    """
    tape = ctx.tape
    narrow = ctx.run(m.proj, x)
    logits = F.cast(narrow, "float32", "logits in fp32")
    del narrow
    ctx.shared["logits"] = logits
    rows = Axis("seq_len - 1", ctx.seq.size - 1)
    shifted = F.clone(F.narrow(logits, (ctx.batch, rows, logits.shape[-1])), "shifted logits")
    del logits
    labels = tape.new((ctx.batch, rows), "int64", "shifted labels")
    sums = tape.new((ctx.batch, rows), "float32", "log-sum-exp")
    losses = tape.new((ctx.batch, rows), "float32", "losses")
    loss = tape.new((), "float32", "loss")
    del losses
    kind = (shifted.shape, shifted.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, saved: Tensor, sums: Tensor, labels: Tensor) -> tuple[Tensor | None, ...]:
        return (_handed_on(saved, kind),)

    tape.record(loss, (shifted,), (shifted, sums, labels), backward)
    return loss


LOSSES = {"chunked": chunked, "chunked_output": chunked_output, "fused_linear": fused_linear, "cut_cross_entropy": cut_cross_entropy, "in_place": in_place}
"""By the name of the run key."""
