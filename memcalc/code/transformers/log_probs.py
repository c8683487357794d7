"""What preference and reinforcement learning take of a model instead of a loss on its labels: log-probabilities of given tokens, from whole logits.

Source: TRL 1.10, trainer/utils.py, ``selective_log_softmax`` and ``entropy_from_logits``, and the trainers that call them; how the numbers of tokens
and sequences that come out become a loss allocates next to nothing, and is left out.
"""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context
from memcalc.code.release import let_go
from memcalc.code.transformers.head import logits_of
from memcalc.components import Head
from memcalc.formulas.preference import ENTROPY_CHUNK
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.span import minimum
from memcalc.tape.tensor import Shape, Tensor


def preference(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → log-probabilities (batch, seq - 1): DPO and its kin (DPOTrainer._compute_loss).

    The model's output, and its logits with it, is held until the loss is there. SimPO's likewise (experimental/cpo,
    CPOTrainer.concatenated_forward without its likelihood term).
    """
    logits = ctx.shared["logits"] = returned(ctx, m, x)
    return selected(shifted(ctx, logits))


def logits(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → logits (batch, seq, vocabulary), which somebody holds."""
    found = ctx.shared["logits"] = returned(ctx, m, x)
    return found


def odds(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → log-probabilities, and the likelihood of the chosen half of a batch (experimental/orpo, ORPOTrainer.concatenated_forward)."""
    logits = ctx.shared["logits"] = returned(ctx, m, x)
    seq, vocab = Axis("seq_len - 1", ctx.seq.size - 1), logits.shape[-1]
    chosen = F.narrow(F.narrow(logits, (Axis("chosen", ctx.batch.size // 2), ctx.seq, vocab)), (Axis("chosen", ctx.batch.size // 2), seq, vocab))
    copied = F.clone(chosen, "logits of the chosen")
    target = ctx.tape.new(chosen.shape[:2], "int64", "labels of the chosen")
    del chosen
    likelihood = F.nll_loss(F.log_softmax(copied), target)
    del copied
    return F.add(selected(shifted(ctx, logits)), likelihood, "loss")


def policy(ctx: Context, m: Head, x: Tensor, *, wide: bool = False) -> Tensor:
    """x (batch, seq, hidden) → log-probabilities of the answer (batch, answer): PPO and its kin (GRPOTrainer._get_per_token_logps_and_entropies).

    Logits are made of the last tokens only, copied when they are divided by the temperature, and looked at for their entropy.
    """
    asked = ctx.settings.objective
    assert asked is not None
    answer = Axis("answer", ctx.seq.size - 1 if asked.answer is None else asked.answer)
    last = F.narrow(x, (ctx.batch, Axis("answer + 1", answer.size + 1), x.shape[-1]))
    # The last tokens of several sequences are no matrix: the product copies them. An array of batches holds none of one.
    several = not ctx.has_one_sequence
    logits = returned(ctx, m, F.clone(last, "hidden states of the answer") if several else last)
    del last
    let_go(x)
    logits = F.cast(logits, "float32", "logits in fp32") if wide else logits
    kept = (ctx.batch, answer, logits.shape[-1])
    scaled = F.scale(F.narrow(F.narrow(logits, kept), kept), "logits / temperature")  # without the last, then the last so many
    found = selected(scaled)
    if asked.entropy == "chunked":
        look_up_entropy(scaled)
    return F.add(found, entropy(scaled), "loss") if asked.entropy == "whole" else found


def policy_in_place(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → log-probabilities of the answer, whose logits are divided by the temperature in place (experimental/ppo, PPOTrainer.train).

    Logits are made of all tokens, and held by the loop beyond backward.
    """
    asked = ctx.settings.objective
    assert asked is not None
    logits = ctx.shared["logits"] = returned(ctx, m, x)
    answer = (ctx.batch, Axis("answer", ctx.seq.size - 1 if asked.answer is None else asked.answer), logits.shape[-1])
    return selected(F.narrow(_divided(logits, answer), answer))


def policy_by_kernel(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → log-probabilities, by flash attention's cross-entropy of logits that are divided in place.

    Of all tokens where padding is taken out of a batch, whose entropies compiled code finds; otherwise of the answer's, copied, with entropies in
    torch's own operators (verl 0.6, workers/actor/dp_actor.py, ``_forward_micro_batch``; utils/torch_functional.py, ``logprobs_from_logits``).
    """
    asked = ctx.settings.objective
    assert asked is not None
    logits = F.scale_in_place(returned(ctx, m, x))
    alone = asked.entropy == "none"
    if asked.answer is None:
        return _by_kernel(logits, in_place=True) if alone else F.add(_by_kernel(logits, in_place=False), compiled_entropy(logits), "loss")
    part = F.narrow(logits, (ctx.batch, Axis("answer", asked.answer), logits.shape[-1]))
    found = _by_kernel(F.clone(part, "logits of the answer"), in_place=alone)
    return found if alone else F.add(found, entropy(part), "loss")


def _by_kernel(logits: Tensor, *, in_place: bool) -> Tensor:
    """logits (…, vocabulary) → (…): saves them and their log-sum-exp; the gradient stands in their place, where nobody else needs them."""
    tape, rows = logits.tape, logits.shape[:-1]
    sums, out = tape.new(rows, "float32", "log-sum-exp"), tape.new(rows, "float32", "log-probabilities")

    def backward(wants: tuple[bool, ...], g: Tensor, logits: Tensor, sums: Tensor) -> tuple[Tensor]:
        return (Tensor(g.tape, logits.shape, logits.dtype, logits.storage) if in_place else F.like(logits, "gradient of logits"),)

    tape.record(out, (logits,), (logits, sums), backward)
    return out


def compiled_entropy(logits: Tensor) -> Tensor:
    """logits (…, vocabulary) → (…): one kernel each way, between which logits and two numbers of each row are kept."""
    tape, rows = logits.tape, logits.shape[:-1]
    kept = [tape.new(rows, logits.dtype, name) for name in ("largest logits", "log-sum-exp")]
    out = tape.new(rows, logits.dtype, "entropy")
    tape.record(out, (logits,), (logits, *kept), lambda wants, g, logits, *rest: (F.like(logits, "gradient of entropy"),))
    return out


def _divided(x: Tensor, part: Shape) -> Tensor:
    """``x[…] /= constant``: x's own storage. The gradient is copied, its part copied, scaled and put back (CopySlices)."""
    y, tape = Tensor(x.tape, x.shape, x.dtype, x.storage), x.tape

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        made = F.like(g, "copy of gradient")
        copied, scaled = (tape.new(part, g.dtype, f"{name} of the part") for name in ("copy", "gradient"))
        del copied, scaled
        return (made,)

    tape.record(y, (x,), (), backward)
    return y


def policy_in_fp32(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """As `policy`, of logits that the trainer casts (OpenRLHF 0.10, models/actor.py, Actor.forward)."""
    return policy(ctx, m, x, wide=True)


def returned(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """Logits as the trainer gets them: under autocast in fp32 (accelerate, ``convert_outputs_to_fp32``). The model's forward is through."""
    logits = logits_of(ctx, m, x)
    let_go(x)
    return F.cast(logits, "float32", "logits in fp32") if ctx.settings.autocast is not None else logits


def shifted(ctx: Context, logits: Tensor) -> Tensor:
    """Logits of all tokens but the last."""
    return F.narrow(logits, (ctx.batch, Axis("seq_len - 1", ctx.seq.size - 1), logits.shape[-1]))


def selected(logits: Tensor) -> Tensor:
    """logits (batch, tokens, vocabulary) → (batch, tokens), sequence by sequence: by log-softmax, in fp32 by log-sum-exp."""
    return _by_sums(logits) if logits.dtype in ("float32", "float64") else _by_log_softmax(logits)


def entropy(logits: Tensor) -> Tensor:
    """logits (batch, tokens, vocabulary) → (batch, tokens), of all at once and with a graph (verl 0.6, utils/torch_functional.py, entropy_from_logits)."""
    probs = F.softmax(logits, name="probabilities")
    weighted = F.mul(probs, logits, "probabilities * logits")
    del probs
    return F.mean(weighted, "entropy")


def look_up_entropy(logits: Tensor) -> None:
    """The same for the log: without a graph, some tokens at a time."""
    tape, vocab = logits.tape, logits.shape[-1]
    rows = (Axis("chunk", minimum(logits.shape[0].size * logits.shape[1].size, ENTROPY_CHUNK)), vocab)
    log_probs, exponents, products = (tape.new(rows, logits.dtype, f"{name} for entropy") for name in ("log-softmax", "exp", "product"))
    del products, exponents, log_probs


def _by_log_softmax(logits: Tensor) -> Tensor:
    """Log-softmax of each sequence, which its backward needs; without a graph two are there at a time."""
    tape, (batch, tokens, vocab), dtype = logits.tape, logits.shape, logits.dtype
    row, others = _rows(logits.shape)
    if not tape.grad_enabled:
        first = tape.new(row, dtype, "log-softmax")
        second = tape.new((Axis("another", 1 * (batch.size > 1)), *row), dtype, "log-softmax")
        del first, second
        return tape.new((batch, tokens), dtype, "log-probabilities")
    probs = tape.new(logits.shape, dtype, "log-softmax")
    out = tape.new((batch, tokens), dtype, "log-probabilities")

    def backward(wants: tuple[bool, ...], g: Tensor, probs: Tensor) -> tuple[Tensor]:
        zeros = tape.new(row, dtype, "zeros")
        scattered = tape.new(row, dtype, "gradient of gather")
        del zeros
        made = tape.new(row, dtype, "gradient of log-softmax")
        del scattered
        assert probs.storage is not None
        probs.storage.drop()
        rest = tape.new(others, dtype, "gradient of log-softmax")
        stacked = tape.new((batch, tokens, vocab), dtype, "gradient of logits")
        del made, rest
        return (stacked,)

    tape.record(out, (logits,), (probs,), backward)
    return out


def _by_sums(logits: Tensor) -> Tensor:
    """The token's logit less the log-sum-exp; both need the logits for their backward, and both make a gradient of all of them."""
    tape, (batch, tokens, vocab), dtype = logits.tape, logits.shape, logits.dtype
    row, others = _rows(logits.shape)
    picked = tape.new((batch, tokens), dtype, "logits of tokens")

    def back_to_all(wants: tuple[bool, ...], g: Tensor, logits: Tensor) -> tuple[Tensor]:
        zeros = tape.new((batch, tokens, vocab), dtype, "zeros")
        made = tape.new((batch, tokens, vocab), dtype, "gradient of gather")
        del zeros
        return (made,)

    tape.record(picked, (logits,), (logits,), back_to_all)
    kept, sums = tape.new((batch, tokens), dtype, "log-sum-exp of rows"), tape.new((batch, tokens), dtype, "log-sum-exp")

    def back_by_rows(wants: tuple[bool, ...], g: Tensor, logits: Tensor, kept: Tensor) -> tuple[Tensor]:
        rest = tape.new(others, dtype, "gradient of log-sum-exp")
        shifted, exponents = tape.new(row, dtype, "difference"), tape.new(row, dtype, "exp")
        last = tape.new(row, dtype, "gradient of log-sum-exp")
        del shifted, exponents
        stacked = tape.new((batch, tokens, vocab), dtype, "gradient of logits")
        del rest, last
        return (stacked,)

    tape.record(sums, (logits,), (logits, kept), back_by_rows)
    return F.sub(picked, sums, "log-probabilities")


def _rows(shape: Shape) -> tuple[Shape, Shape]:
    """The shape of one sequence's logits, and of all others' together."""
    batch, tokens, vocab = shape
    several: Any = batch.size - 1
    return (tokens, vocab), (Axis("batch - 1", several), tokens, vocab)
