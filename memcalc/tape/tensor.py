"""Axis, Storage and Tensor: shapes with names, bytes with an owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.units import DTYPE_BYTES

if TYPE_CHECKING:
    from memcalc.tape.tape import Leaf, Node, Tape


class Axis(NamedTuple):
    """One dimension of a shape: what it counts, and how many (an int or an integer array)."""

    name: str
    size: Any


Shape = tuple[Axis, ...]


def numel(shape: Shape) -> Any:
    """Number of elements of a shape; 1 for a scalar.

    >>> numel((Axis("tokens", 4), Axis("hidden_size", 8)))
    32
    """
    count: Any = 1
    for axis in shape:
        count = count * axis.size
    return count


class Record:
    """What the ledger keeps of a storage, enough to name and explain its bytes after its death.

    Attributes:
        path: what these bytes are, as a slash path such as ``activations/layers/self_attn/query``.
        shape, dtype: of the tensor that allocated them.
        num_bytes: int or integer array.
    """

    __slots__ = ("dtype", "num_bytes", "path", "shape")

    def __init__(self, path: str, shape: Shape, dtype: str) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        self.num_bytes: Any = numel(shape) * DTYPE_BYTES[dtype]


Event = tuple[int, Record]
"""A birth (1) or a death (−1) of a storage; 0 marks a moment between them, which the path of its record names (`Tape.mark`)."""


class Storage:
    """Bytes that live as long as something refers to them: birth and death are appended to the ledger's events."""

    __slots__ = ("_events", "_stand_in", "record")

    def __init__(self, events: list[Event], record: Record, *, is_born: bool = True) -> None:
        self._events, self.record = events, record
        self._stand_in: Storage | bool = True
        if is_born:
            events.append((1, record))

    def drop(self) -> None:
        """The bytes go, though something refers to them; what is gone stays so."""
        if self._stand_in is True:
            self._events.append((-1, self.record))
            self._stand_in = False

    def unmake(self) -> None:
        """The bytes have never been there, since the operator that would have made them did not run."""
        self._events.remove((1, self.record))
        self._stand_in = False

    def take_over(self, other: Storage) -> None:
        """After `drop`: whoever refers to this refers to the bytes of another from now on."""
        self._stand_in = other

    def __del__(self) -> None:
        if self._stand_in is True:
            self._events.append((-1, self.record))


class Tensor:
    """A shape, a dtype, a storage (shared between views; None for a parameter, which is resident elsewhere) and a place in the graph."""

    __slots__ = ("dtype", "index", "node", "requires_grad", "shape", "storage", "tape")

    def __init__(self, tape: Tape, shape: Shape, dtype: str, storage: Storage | None) -> None:
        self.tape, self.shape, self.dtype, self.storage = tape, shape, dtype, storage
        self.requires_grad = False
        self.node: Node | Leaf | None = None
        self.index = 0

    def __add__(self, other: Tensor) -> Tensor:
        from memcalc.tape.functional import add

        return add(self, other)

    def __mul__(self, other: Tensor) -> Tensor:
        from memcalc.tape.functional import mul

        return mul(self, other)
