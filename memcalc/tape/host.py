"""Saved tensors that wait for backward in the host's memory, as hooks on saved tensors send them there (torch.autograd.graph.saved_tensors_hooks).

Source: torchtune/training/_activation_offloading.py, ``OffloadActivations`` with streams; TRL's is a copy of it (trl/models/activation_offloading.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.tape.tensor import Shape, Tensor, numel
from memcalc.units import DTYPE_BYTES

if TYPE_CHECKING:
    from memcalc.tape.tape import Node, Tape

MIN_BYTES = 1024
"""Smaller tensors stay (``min_offload_size``)."""
STASH = 5
"""A tensor stays on the card until so many more have been saved, since its copy may not be through (``max_fwd_stash_size``)."""


class Packed(NamedTuple):
    """A tensor that is on the host.

    Attributes:
        number: which it was among those that were saved.
        shape, dtype, path: as it was on the card.
    """

    number: int
    shape: Shape
    dtype: str
    path: str


class Host:
    """Where saved tensors go, each as often as it is saved; parameters stay.

    Args:
        tape: whose.

    Attributes:
        num_bytes: what it holds.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.num_bytes: Any = 0
        self._stash: dict[int, Tensor] = {}
        self._back: list[Tensor] = []
        self._count = 0
        self._open = True

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Nothing that is saved inside goes to the host."""
        before, self._open = self._open, False
        try:
            yield
        finally:
            self._open = before

    def pack(self, tensor: Tensor) -> Tensor | Packed:
        """What a node keeps in the place of a tensor that it saves."""
        if not self._open:
            return tensor
        self._count += 1
        size = numel(tensor.shape) * DTYPE_BYTES[tensor.dtype]
        if tensor.storage is None or not _all(size >= MIN_BYTES):
            return tensor
        self.age()
        self._stash[self._count] = tensor
        self.take(size)
        return Packed(self._count, tensor.shape, tensor.dtype, tensor.storage.record.path)

    def age(self, more: int = 0) -> None:
        """Copies are through of what was saved long enough ago, once so many more have been saved."""
        for k in [k for k in self._stash if k <= self._count + more - STASH]:
            del self._stash[k]

    def take(self, num_bytes: Any) -> None:
        """So many more bytes are on the host."""
        self.num_bytes = self.num_bytes + num_bytes

    def unpack(self, node: Node) -> list[Tensor] | None:
        """Bring back what a node has saved: the tensor itself while its copy may not be through, or a new one.

        Returns:
            the new ones; None where it has nothing on the host.
        """
        if not any(isinstance(kept, Packed) for kept in node.saved):
            return None
        back: list[Tensor] = []
        saved: list[Any] = []
        for kept in node.saved:
            if not isinstance(kept, Packed):
                saved.append(kept)
            elif kept.number in self._stash:
                saved.append(self._stash[kept.number])
            else:
                saved.append(self.tape.input(kept.shape, kept.dtype, kept.path))
                back.append(saved[-1])
        node.saved = tuple(saved)
        return back

    def ran(self, back: list[Tensor] | None) -> None:
        """A node has run back with these: those of the node before go, and so does what still waited from forward."""
        if back is not None:
            self._stash.clear()
            self._back = back

    def settle(self) -> None:
        """All copies are through."""
        self._stash.clear()
        self._back = []


def _all(found: Any) -> bool:
    return found if isinstance(found, bool) else bool(found.all())
