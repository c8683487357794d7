"""What an optimizer answers about the tensors that it steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from memcalc.specs.job import Job
from memcalc.tape.span import maximum


class Stepped(NamedTuple):
    """One tensor as a rank's optimizer sees it.

    Attributes:
        path: its name.
        num_params: its elements.
        shape: their arrangement; of one axis where the engine hands over flat tensors.
        copies: how many equal ones there are.
        width: bytes of an element.
        is_table: it is the weight of an nn.Embedding.
        is_hidden: it is a matrix of the layers, neither a table nor the head's.
        is_target: GaLore and APOLLO project its gradient.
    """

    path: str
    num_params: Any
    shape: tuple[Any, ...]
    copies: int = 1
    width: int = 2
    is_table: bool = False
    is_hidden: bool = False
    is_target: bool = False


class Held(NamedTuple):
    """Bytes that are kept or needed, with the formula that they come from.

    Attributes:
        name: what they are (``moments``).
        bytes: how many, of one tensor or of all.
        formula: in words and names.
        source: file and function.
        on_host: they are not on the card.
    """

    name: str
    bytes: Any
    formula: str
    source: str
    on_host: bool = False


class Optimizer:
    """One optimizer; the defaults are those of one without states, which needs nothing on top."""

    counter_bytes: int = 0
    """Bytes of a counter of steps that it keeps with each tensor."""
    has_foreach = False
    """Whether it can step all tensors in one list."""
    keeps_gradients = True
    """Whether gradients wait for the step; otherwise weights are stepped in backward, each as its gradient is there."""
    holds_last = False
    """Of those that step in backward: a gradient waits until the next one is there (LOMO)."""
    whole_matrices = False
    """It needs each matrix as one tensor, whole."""

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """What it keeps with one tensor between steps."""
        return iter(())

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """What a step of these tensors allocates; each is there for a moment of its own."""
        return iter(())


def in_turn(tensors: Iterable[Stepped], need: Callable[[Stepped, Any], Any]) -> Any:
    """The most that tensors stepped one by one need.

    Args:
        tensors: in their order.
        need: bytes for a tensor and the elements of the one before, whose variables are still bound.
    """
    most: Any = 0
    before: Any = 0
    for t in tensors:
        most = maximum(most, need(t, before))
        before = t.num_params
    return most


def total(tensors: Iterable[Stepped], each: Callable[[Stepped], Any]) -> Any:
    """A sum over all tensors, copies included."""
    return sum((each(t) * t.copies for t in tensors), 0)
