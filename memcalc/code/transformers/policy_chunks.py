"""Log-probabilities from hidden states, whose logits are there for some tokens at a time, forward and again in backward (verl's fused kernels).

Source: verl 0.6, utils/experimental/torch_functional.py, ``FusedLinearForPPOFunction``, and models/transformers/dense_common.py, which asks it for all
tokens of a batch. Without a graph its own loops run in torch's operators, one after the other.
"""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.transformers.loss import weight_of
from memcalc.components import Head
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.matmul import cast_weight
from memcalc.tape.span import minimum
from memcalc.tape.tensor import Shape, Tensor

CHUNK = 512
"""Tokens at a time (``FusedLinearForPPO.__init__``)."""


def policy_by_chunks(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → log-probabilities and entropies (batch, seq). Saves x and the weight."""
    asked, tape = ctx.settings.objective, ctx.tape
    assert asked is not None
    weight = cast_weight(weight_of(ctx, m), f"{m.proj.name}/weight")
    tokens = ctx.batch.size * ctx.seq.size
    rows: Shape = (Axis("chunk", minimum(tokens, CHUNK)), weight.shape[0])
    out = tape.new(x.shape[:-1], x.dtype, "log-probabilities")
    entropies = tape.new(x.shape[:-1], x.dtype, "entropies")
    found = [*_logits(rows, x), *(tape.new(rows, "float32", name) for name in ("probabilities", "log-softmax", "product"))]
    del found
    has_entropy_loss = asked.entropy != "none"

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor | None, ...]:
        of_x = F.like(x, "gradient of hidden states") if wants[0] else None
        of_weight = F.like(weight, "gradient of weight") if wants[1] else None
        before: list[Tensor] = []
        for _ in range(1 if isinstance(tokens, int) and tokens <= CHUNK else 2):  # what the chunk before made is there until its own is
            before = _back(rows, x, weight, has_entropy_loss=has_entropy_loss, before=before)
        return of_x, of_weight

    tape.record(out, (x, weight), (x, weight), backward)
    return F.add(out, entropies, "loss") if has_entropy_loss else out


def _logits(rows: Shape, x: Tensor) -> list[Tensor]:
    """Logits of a chunk in fp32: the product, over the temperature, cast."""
    made = x.tape.new(rows, x.dtype, "logits of a chunk")
    divided = F.like(made, "logits / temperature")
    del made
    return [F.like(divided, "logits of a chunk in fp32", "float32")]


def _back(rows: Shape, x: Tensor, weight: Tensor, *, has_entropy_loss: bool, before: list[Tensor]) -> list[Tensor]:
    """Both gradients of a chunk, of hidden states and of the weight."""
    tape = x.tape

    def wide(name: str) -> Tensor:
        return tape.new(rows, "float32", f"{name} of a chunk")

    kept = [*_logits(rows, x), wide("probabilities"), wide("one-hot targets")]
    difference = wide("one-hot targets less probabilities")
    product = wide("gradient by log-probabilities")
    del difference
    of_logits = wide("gradient of logits")
    del product
    if has_entropy_loss:
        kept.append(wide("log-softmax"))
        moved = wide("log-softmax and entropy")
        product = wide("product")
        del moved
        more = wide("gradient by entropies")
        del more, product
    cast = tape.new(rows, x.dtype, "gradient of logits of a chunk, cast")
    divided = F.like(cast, "gradient of logits of a chunk")
    del of_logits, cast
    of_rows = tape.new((rows[0], x.shape[-1]), x.dtype, "gradient of hidden states of a chunk")
    of_weight = F.like(weight, "gradient of weight by a chunk")
    del divided, kept, before
    return [of_rows, of_weight]
