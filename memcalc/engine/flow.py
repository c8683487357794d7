"""What passes between the blocks of a model, and what each of them does to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from memcalc.dataclass import dataclass
from memcalc.tape.span import Span
from memcalc.tape.tensor import Record, Shape

STREAM = "activations/hidden_states"
STREAM_GRADIENT = "activations/gradient of hidden_states"
LOSS_GRADIENT = "activations/gradient of loss"
BESIDE = "activations/image hidden_states"
BESIDE_GRADIENT = "activations/gradient of image hidden_states"
PIXELS = "batch/pixel_values"


@dataclass(frozen=True)
class Flow:
    """A tensor that passes from block to block."""

    shape: Shape
    dtype: str
    requires_grad: bool

    def key(self) -> tuple[Any, ...]:
        """What tells it from others; an array of sizes is told by its identity."""
        return (*((a.name, a.size if isinstance(a.size, int) else id(a.size)) for a in self.shape), self.dtype, self.requires_grad)


Steps = Sequence[tuple[Span, Record | None]]
"""Stretches, each with the mark that ends it."""


@dataclass
class Profile:
    """What one block does to memory.

    Attributes:
        forward: from its input to its output; the output stays, the input goes unless it is saved.
        release: what goes when the forward pass of the whole model is over (autocast's weight copies, the logits).
        backward: from the gradient of its output to that of its input, saved tensors freed, weight gradients born.
        out: its output.
        shared: tensors it made for all later blocks.
        keeps: names of shared tensors that it saves for backward.
        grades: names of shared tensors whose gradient it makes, or adds to.
        end: what goes when the backward pass of the whole model is over.
        after: what goes when the optimizer has stepped.
        forward_steps, backward_steps: both, cut at the marks that `Settings.marks` asks for; empty where it asks for none.
        frees_input: its input is gone after its forward, since nothing saved it.
        saves_output: it saves its own output for backward.
        holds_output: the model's own forward holds its output until the last layer is through (of an embedding).
        host_bytes: what it has saved on the host.
        awaiting_bytes: gradients that wait for those of weights where these are put off (zero bubble).
        runs: it is used at all; the vision tower of a model that sees no images is not.
        reruns: it runs again in backward.
    """

    forward: Span
    release: Span
    backward: Span
    out: Flow
    shared: dict[str, Flow] = field(default_factory=dict)
    keeps: frozenset[str] = frozenset()
    forward_steps: Steps = ()
    backward_steps: Steps = ()
    frees_input: bool = True
    saves_output: bool = False
    holds_output: bool = True
    runs: bool = True
    reruns: bool = False
    host_bytes: Any = 0
    awaiting_bytes: Any = 0
    grades: frozenset[str] = frozenset()
    end: Span = field(default_factory=Span)
    after: Span = field(default_factory=Span)


def unused(x: Flow) -> Profile:
    """The profile of a block that is there and does not run."""
    return Profile(Span(), Span(), Span(), x, holds_output=False, runs=False, frees_input=False)
