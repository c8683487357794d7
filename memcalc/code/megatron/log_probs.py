"""Log-probabilities of given tokens, of a vocabulary that tensor-parallel ranks share: what reinforcement learning takes of the output layer.

Sources: megatron/core/transformer/module.py, ``Float16Module.forward``, which gives logits in fp32; verl 0.6, workers/actor/megatron_actor.py,
utils/megatron/tensor_parallel.py and utils/kernel/kernels.py; NeMo-RL 0.5, nemo_rl/distributed/model_utils.py; ms-swift 4,
swift/megatron/trainers/vocab_parallel_utils.py. How the numbers of tokens become a loss allocates next to nothing, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable

from memcalc.code.context import Context
from memcalc.code.megatron import parallel
from memcalc.code.megatron.head import output_layer
from memcalc.components import Head
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import like
from memcalc.tape.span import minimum
from memcalc.tape.tensor import Shape, Tensor

SPLIT, SPLIT_BACK = 1024, 9504
"""Words of the vocabulary that verl's fused kernel takes at once, forward and back (``vocab_per_split``)."""

DEFAULT_CHUNK = 256
"""Tokens that NeMo-RL's takes at a time (``fused_linear_logprobs_chunk_size``)."""


def policy(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (sequence, batch, hidden) → log-probabilities: less Megatron's cross-entropy."""
    return cross_entropy(in_fp32(ctx, m, x))


def cross_entropy(logits: Tensor) -> Tensor:
    """logits (…, vocabulary) in fp32 → a loss for each token: probabilities, and in backward the gradient, are made in the logits' own storage.

    Source: megatron/core/tensor_parallel/cross_entropy.py, which is asked for itself, whatever fused loss a model is configured with.
    """
    tape, rows = logits.tape, logits.shape[:-1]
    probs = Tensor(tape, logits.shape, logits.dtype, logits.storage)
    mask, target = tape.new(rows, "bool", "targets of other ranks"), tape.new(rows, "int64", "masked targets")
    out = tape.new(rows, "float32", "loss of each token")

    def backward(wants: tuple[bool, ...], g: Tensor, probs: Tensor, *rest: Tensor) -> tuple[Tensor]:
        return (Tensor(g.tape, probs.shape, probs.dtype, probs.storage),)

    tape.record(out, (logits,), (probs, mask, target), backward)
    return out


def divided(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """As `policy`, of logits that are divided by the temperature in place; beside them their entropy, of a copy (verl's logits_processor)."""
    asked = ctx.settings.objective
    assert asked is not None
    logits = F.scale_in_place(in_fp32(ctx, m, x))
    if asked.entropy == "none":
        return cross_entropy(logits)
    copied = F.clone(logits, "copy of logits")
    entropies = entropy(logits)
    return F.add(cross_entropy(copied), entropies, "loss of each token")


def entropy(logits: Tensor) -> Tensor:
    """logits (…, vocabulary) → (…): probabilities are kept, and turned into the gradient in place (_VocabParallelEntropy)."""
    probs, out = like(logits, "probabilities for entropy"), logits.tape.new(logits.shape[:-1], "float32", "entropy")

    def backward(wants: tuple[bool, ...], g: Tensor, logits: Tensor, probs: Tensor) -> tuple[Tensor]:
        return (Tensor(g.tape, probs.shape, probs.dtype, probs.storage),)

    logits.tape.record(out, (logits,), (logits, probs), backward)
    return out


def by_log_softmax(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """As `policy`, by a log-softmax of all logits (NeMo-RL, DistributedLogprob), or of some tokens' at a time (ChunkedDistributedLogprob).

    The latter leaves logits in the model's dtype and saves them; its backward makes a log-softmax again.
    """
    asked = ctx.settings.objective
    assert asked is not None
    if asked.chunk is None:
        return _whole(in_fp32(ctx, m, x))
    logits = logits_of(ctx, m, x)
    return _by_chunks(ctx, logits, Axis("logprob_chunk", minimum(ctx.seq.size, asked.chunk)))


def _whole(logits: Tensor) -> Tensor:
    """logits (sequence, batch, vocabulary) in fp32 → log-probabilities; probabilities are saved."""
    tape = logits.tape
    full = _log_softmax(logits)
    out = tape.new(logits.shape[:-1], "float32", "log-probabilities")
    probs = like(full, "probabilities") if tape.grad_enabled else None
    del full
    saved = () if probs is None else (probs,)
    tape.record(out, (logits,), saved, lambda wants, g, probs: (like(probs, "gradient of logits in fp32"),))
    return out


def _by_chunks(ctx: Context, logits: Tensor, rows: Axis) -> Tensor:
    """The same of some tokens at a time."""
    tape, dtype, part = ctx.tape, logits.dtype, (rows, *logits.shape[1:])

    def once() -> tuple[Tensor, Tensor]:
        wide = tape.new(part, "float32", "logits of some tokens in fp32")
        return wide, _log_softmax(wide)

    found = once()
    del found
    out = tape.new(logits.shape[:-1], "float32", "log-probabilities")

    def backward(wants: tuple[bool, ...], g: Tensor, logits: Tensor) -> tuple[Tensor]:
        made = like(logits, "gradient of logits", dtype)
        wide, full = once()
        probs = like(full, "probabilities of some tokens")
        del full
        hot = tape.new(part, "int64", "one-hot targets")
        chosen = tape.new(part, "int64", "one-hot targets of this rank")
        del hot
        of_chunk = like(probs, "gradient of some logits in fp32")
        del of_chunk, chosen, probs, wide
        return (made,)

    tape.record(out, (logits,), (logits,), backward)
    return out


def _log_softmax(logits: Tensor) -> Tensor:
    """Logits less the largest, whose exponents are summed, then less the sum's logarithm: both are there at once."""
    moved = like(logits, "logits less the largest")
    exponents = like(moved, "exponents")
    del exponents
    return like(moved, "log-softmax")


def in_pieces(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """As `policy`, by a kernel that never holds all logits, and finds entropies on the way (verl, linear_cross_entropy)."""
    tape = ctx.tape
    (weight,) = parallel.parameters(ctx, m.proj)
    hidden = parallel.gather_sequence(ctx, x, "gathered hidden states")
    rows, vocab = hidden.shape[:-1], weight.shape[0]
    pieces = Axis("pieces of the vocabulary", -(-vocab.size // SPLIT))
    partial = [tape.new((*rows, pieces), "float32", f"{name} of pieces") for name in ("largest logits", "sums", "entropies")]
    kept = [tape.new(rows, "float32", name) for name in ("largest logits", "sums", "entropies")]
    out = tape.new(rows, "float32", "log-probabilities")
    del partial

    def backward(wants: tuple[bool, ...], g: Tensor, hidden: Tensor, weight: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden = like(hidden, "gradient of hidden states")
        of_weight = like(weight, "gradient of weight") if wants[1] else None
        of_logits = tape.new((*hidden.shape[:-1], Axis("words at once", minimum(vocab.size, SPLIT_BACK))), hidden.dtype, "gradient of some logits")
        more = like(hidden, "product of some logits")
        del of_logits, more
        return of_hidden, of_weight

    tape.record(out, (hidden, weight), (hidden, weight, *kept), backward)
    return out


def by_chunks(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """As `policy`, from hidden states, some tokens at a time (NeMo-RL, ChunkedDistributedHiddenStatesToLogprobs): products with weights are in fp32."""
    tape, asked = ctx.tape, ctx.settings.objective
    assert asked is not None
    (weight,) = parallel.parameters(ctx, m.proj)
    part, full = x.shape, parallel.whole(ctx, x)
    rows = (Axis("logprob_chunk", minimum(ctx.seq.size, asked.chunk or DEFAULT_CHUNK)), *part[1:-1], weight.shape[0])
    copied = like(x, "copy of hidden states") if ctx.has_tp else x
    whole = _gathered(ctx, x, full)
    logits = tape.new(rows, x.dtype, "logits of some tokens")
    wide = tape.new(rows, "float32", "logits of some tokens in fp32")
    del logits
    found = _log_softmax(wide)
    del found, wide, whole
    out = tape.new(full[:-1], "float32", "log-probabilities")

    def backward(wants: tuple[bool, ...], g: Tensor, copied: Tensor, weight: Tensor) -> tuple[Tensor | None, ...]:
        again = _gathered(ctx, copied, full)
        of_weight = like(weight, "gradient of weight")
        of_hidden = tape.new(full, "float32", "gradient of hidden states in fp32")
        before = [like(weight, "gradient of weight by the tokens before", "float32"), tape.new(rows, "int64", "one-hot targets of the tokens before")]
        before.append(tape.new(rows, "float32", "gradient of logits of the tokens before"))
        wide = tape.new(rows, "float32", "logits of some tokens in fp32")
        probs = _log_softmax(wide)
        hot, chosen = tape.new(rows, "int64", "one-hot targets"), tape.new(rows, "int64", "one-hot targets of this rank")
        del hot, before[1:]
        of_chunk = tape.new(rows, "float32", "gradient of some logits in fp32")
        product = like(weight, "gradient of weight by some tokens", "float32")
        before.clear()
        turned = like(weight, "the same, transposed", "float32")
        del turned, product, of_chunk, chosen, probs, wide
        joined = tape.new(full, "float32", "gradient of hidden states, joined")
        del of_hidden, again
        of_x = tape.new(part, "float32", "gradient of input of logits") if ctx.has_tp else joined
        del joined
        return like(of_x, "gradient of input of logits", copied.dtype), of_weight if wants[1] else None

    tape.record(out, (x, weight), (copied, weight), backward)
    return out


def _gathered(ctx: Context, x: Tensor, full: Shape) -> list[Tensor]:
    """Hidden states of all tensor-parallel ranks, apart and joined."""
    return [ctx.tape.new(full, x.dtype, f"{name} hidden states of all ranks") for name in ("gathered", "joined")] if ctx.has_tp else []


def logits_of(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """Logits of this rank's part of the vocabulary, as the model returns them."""
    logits = output_layer(ctx, m, x)
    return F.scale(logits, "scaled logits") if m.softcap is not None or m.scaled else logits


def in_fp32(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """The same, as the wrapper of a model in half precision gives them; its own go with the model's forward."""
    logits = logits_of(ctx, m, x)
    return F.cast(logits, "float32", "logits in fp32")


OBJECTIVES: dict[str, Callable[[Context, Head, Tensor], Tensor]] = {
    "policy": policy,
    "policy divided": divided,
    "policy by log-softmax": by_log_softmax,
    "policy in pieces": in_pieces,
    "policy by chunks": by_chunks,
}
"""Programs of a head, under `Settings.objective`; of all others it gives a loss for each token, as in training."""
