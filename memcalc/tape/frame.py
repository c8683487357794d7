"""Stretches that run again in backward.

One under a checkpoint without reentrance: what its operators save is dropped, and made anew when backward first asks for any of it.

Source: torch/utils/checkpoint.py, ``_checkpoint_without_reentrant_generator``, ``_checkpoint_hook`` and ``_recomputation_hook``, with early stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from memcalc.tape.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memcalc.tape.tape import Node, Tape


class LastSaving(NamedTuple):
    """Where in a stretch the last operator stands that saves anything; past it, nothing is needed to run back.

    Attributes:
        num_nodes: operators in the graph, it included.
        num_events: events in the ledger when it had run.
        outputs: identities of the records that it made and did not save, which need not be made.
    """

    num_nodes: int = 0
    num_events: int = 0
    outputs: frozenset[int] = frozenset()


class Dropped(NamedTuple):
    """In the place of a tensor that an operator saved: which of those of its frame it was. It keeps the frame, and so the inputs, alive."""

    frame: Frame
    number: int


class AllThereError(Exception):
    """The last tensor that is asked for has been made: nothing more is run."""


class Frame:
    """One run of a checkpointed stretch.

    Args:
        tape: whose.
        again: runs the stretch; it refers to its inputs.
    """

    def __init__(self, tape: Tape, again: Callable[[], object]) -> None:
        self.tape, self._again = tape, again
        self._count = 0
        self._found: dict[int, Tensor] = {}
        self.replays = False

    def pack(self, tensor: Tensor) -> Tensor | Dropped:
        """What a node keeps of a tensor that it saves; when the stretch runs again, that tensor is found.

        Raises:
            AllThereError: it was the last.
        """
        if not self.replays:
            self._count += 1
            return Dropped(self, self._count)
        self._found[len(self._found) + 1] = tensor
        if len(self._found) == self._count:
            raise AllThereError
        return tensor

    def take(self, number: int) -> Tensor:
        """A tensor that was dropped, for the one operator that asks for it."""
        if not self.replays:
            self._run_again()
        return self._found.pop(number)

    def _run_again(self) -> None:
        self.replays = True
        with self.tape.within(self), self.tape.enable_grad(), suppress(AllThereError):
            self._again()
        self.tape.weight_casts.clear()


def unpack(node: Node) -> list[Frame]:
    """Bring back what a node has dropped; the frames, which are there until it has run."""
    frames = [kept.frame for kept in node.saved if isinstance(kept, Dropped)]
    if frames:
        node.saved = tuple(kept.frame.take(kept.number) if isinstance(kept, Dropped) else kept for kept in node.saved)
    return frames


def unmake(outputs: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    """An operator that would have made these did not run, since what it saves was all that was asked for."""
    known = [t.storage for t in others]
    for tensor in outputs:
        if tensor.storage is not None and tensor.storage not in known:
            tensor.storage.unmake()


@contextmanager
def framed(tape: Tape, again: Callable[[], object]) -> Iterator[None]:
    """What is recorded inside is checkpointed."""
    with tape.within(Frame(tape, again)):
        yield
