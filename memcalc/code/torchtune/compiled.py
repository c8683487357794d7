"""What ``compile: True`` makes of layers and losses: kernels that save their input and make nothing between it and their output.

torchtune compiles each layer and the loss (training/_compile.py). What stands between products is fused (torch/_inductor), and of it the partitioner
keeps what is smallest to make it anew from (torch/_functorch/partitioners.py, ``min_cut_rematerialization_partition``): of a norm its input and the
reciprocal root of each row, of a gate both products, of a loss the logits with maximum and sum of each row. Products and attention are as they are.
"""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def is_compiled(ctx: Context) -> bool:
    """Whether layers and losses are."""
    return bool(ctx.settings.options)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Saves x and the fp32 reciprocal root mean square of each row."""
    out, inverse = F.like(x, "output"), x.tape.new(x.shape[:-1], "float32", "inverse root mean square")
    kind = (weight.shape, weight.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        return F.like(x, "gradient of norm") if wants[0] else None, g.tape.new(*kind, "gradient of weight") if wants[1] else None

    x.tape.record(out, (x, weight), (x, inverse, weight), backward)
    return out


def turned(x: Tensor, name: str) -> Tensor:
    """Rotary positions, whose angles are a buffer; saves nothing."""
    out = F.like(x, f"{name} after rotary")
    x.tape.record(out, (x,), (), lambda wants, g: (F.like(g, f"gradient of {name}"),))
    return out


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """``act(gate) * up``; saves both."""
    out = F.like(up, "gate * up")

    def backward(wants: tuple[bool, ...], g: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor | None, ...]:
        return tuple(F.like(x, "gradient of gate * up") if want else None for x, want in zip((gate, up), wants, strict=True))

    up.tape.record(out, (gate, up), (gate, up), backward)
    return out


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy in fp32 of logits in their own dtype; saves them, and two numbers of each row."""
    tape, rows = logits.tape, Axis("rows", 1)
    for axis in logits.shape[:-1]:
        rows = Axis("rows", rows.size * axis.size)
    largest, total = (tape.new((rows,), "float32", name) for name in ("largest logits", "logarithms of sums"))
    loss = tape.new((), "float32", "loss")
    tape.record(loss, (logits,), (logits, labels, largest, total), lambda wants, g, logits, *rest: (F.like(logits, "gradient of logits"),))
    return loss
