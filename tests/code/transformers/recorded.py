"""One component of transformers' code, recorded: what it leaves behind forward, and what its backward needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memcalc.code.context import Context, Settings
from memcalc.specs.model import Component
from memcalc.tape.span import Span, sum_up
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Axis, Tensor

BATCH, SEQ = 2, 5
TOKENS = BATCH * SEQ


@dataclass(frozen=True)
class Recording:
    """Spans of one component's forward and backward, the caller's reference to its input dropped in between.

    Attributes:
        forward, backward: the spans.
        left: bytes alive at the end, by path.
    """

    forward: Span
    backward: Span
    left: dict[str, int]

    @property
    def saved_bytes(self) -> int:
        """Bytes alive after forward, output and saved tensors, without the input's."""
        return int(self.forward.net)


def record(module: Component, width: int, *, dtype: str = "bfloat16", **more: Any) -> Recording:
    """Run a component on (batch, seq, width), then back.

    Args:
        module: which.
        width: of its input.
        dtype: of its input and weights.
        more: further settings.
    """
    tape = Tape(autocast=more.get("autocast"))
    settings = {"code": "transformers", "attention": "sdpa", "batch": BATCH, "seq": SEQ, "dtype": dtype} | more
    ctx = Context(tape, Settings(**settings))
    inputs = [tape.input((ctx.batch, ctx.seq, Axis("width", width)), dtype, "x", requires_grad=True)]
    begin = len(tape.events)
    y = ctx.run(module, inputs[0], "module")
    forward = sum_up(tape.events[begin:])
    inputs.clear()
    grad: list[Tensor | None] = [tape.input(y.shape, y.dtype, "dy")]
    edge = (y.node, y.index) if y.node is not None else None
    del y
    begin = len(tape.events)
    tape.backward(edge, grad)
    return Recording(forward, sum_up(tape.events[begin:]), sum_up(tape.events).changes)
