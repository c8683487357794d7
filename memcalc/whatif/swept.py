"""A sweep held against its card: which combinations fit, sorted and filtered. Answers as data.

A combination is said to fit when the bytes allocated at its peak and what stands outside the allocator are within the capacity. That is
the least that it needs; the caching allocator's own share comes on top, and is played for single runs (`memcalc.engine.replay`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.fields import Leaf, flags
from memcalc.specs.read import Layer, flag_layer, merged
from memcalc.specs.run import Run
from memcalc.whatif.sweep import SIZES, Points, sweep

if TYPE_CHECKING:
    from memcalc.whatif.served import Held

MODEL = "model"
"""The axis of models, which has no flag."""

MAX_COMBINATIONS = 20_000_000
"""No sweep has more: each takes some thirty bytes."""

TRUTH = {"true": True, "on": True, "1": True, "false": False, "off": False, "none": False, "0": False}

Axes = Mapping[str, Sequence[int | str]]


class Combination(NamedTuple):
    """One combination.

    Attributes:
        values: the swept keys.
        peak_bytes: allocated at the peak of the most loaded rank; None where the combination cannot be.
        instant: when that is.
        need_bytes: with what stands outside the allocator: the least that the card must offer.
        capacity_bytes: of the card or the limit, or None.
        room_bytes: of that, what may be used with the margin kept free.
        reason: why it cannot be, or None.
        held: of a server, what its pool holds.
    """

    values: dict[str, Any]
    peak_bytes: int | None
    instant: str
    need_bytes: int
    capacity_bytes: int | None
    room_bytes: int | None
    reason: str | None = None
    held: Held | None = None

    @property
    def fits(self) -> bool | None:
        """None where it cannot be, or nothing limits it."""
        return None if self.peak_bytes is None or self.room_bytes is None else self.need_bytes <= self.room_bytes


class Swept(NamedTuple):
    """All combinations of a sweep.

    Attributes:
        axes: values by key.
        points: as evaluated.
        limit_bytes, margin: what they are held against beside their cards.
    """

    axes: dict[str, tuple[Any, ...]]
    points: tuple[Points, ...]
    limit_bytes: int | None = None
    margin: float = 0.0

    def combinations(self) -> Iterator[Combination]:
        """One after the other, in the order of `sweep`."""
        for some in self.points:
            capacity, room = self._capacity(some), self._room(some)
            own = {key: getattr(some, key).tolist() for key in SIZES if key in self.axes}
            peaks, when = some.peak_bytes.tolist(), some.instant.tolist()
            for i, peak in enumerate(peaks):
                values = {key: own[key][i] if key in own else some.values[key] for key in self.axes}
                if some.reason is not None:
                    yield Combination(values, None, "", 0, capacity, room, some.reason)
                else:
                    held = some.held[i] if some.held else None
                    yield Combination(values, peak, some.instants[when[i]], peak + some.device_bytes, capacity, room, held=held)

    def counts(self) -> dict[str, int]:
        """How many fit, do not, cannot be, and are held against nothing."""
        found = {"fits": 0, "does not fit": 0, "invalid": 0, "unjudged": 0}
        for some in self.points:
            room = self._room(some)
            if some.reason is not None:
                found["invalid"] += len(some)
            elif room is None:
                found["unjudged"] += len(some)
            else:
                fits = int((some.peak_bytes + some.device_bytes <= room).sum())
                found["fits"] += fits
                found["does not fit"] += len(some) - fits
        return found

    def reasons(self) -> dict[str, int]:
        """Why combinations cannot be, and how many for each reason."""
        found: dict[str, int] = {}
        for some in self.points:
            if some.reason is not None:
                found[some.reason] = found.get(some.reason, 0) + len(some)
        return found

    def chosen(self, *, only: str | None = None, sort: str | None = None) -> Iterator[Combination]:
        """Those asked for.

        Args:
            only: ``fits``, ``fails`` or ``invalid``; None is all that can be.
            sort: ``peak``, ``need`` or a swept key; with a minus before it, the largest first.

        Raises:
            InputError: nothing to sort by of that name.
        """
        keep: dict[str | None, Callable[[Combination], bool]] = {
            "fits": lambda c: c.fits is True,
            "fails": lambda c: c.fits is False,
            "invalid": lambda c: c.reason is not None,
            None: lambda c: c.reason is None,
        }
        found = filter(keep[only], self.combinations())
        if sort is None:
            return found
        name = sort.removeprefix("-").replace("-", "_")
        if name not in ("peak", "need", *self.axes):
            raise InputError(f"{sort!r} is not swept; accepted: peak, need, {', '.join(self.axes)}, with - before it for the largest first", where="--sort")
        keys: dict[str, Callable[[Combination], Any]] = {"peak": lambda c: c.peak_bytes or 0, "need": lambda c: c.need_bytes}
        return iter(sorted(found, key=keys.get(name, lambda c: _order(c.values[name])), reverse=sort.startswith("-")))

    def _capacity(self, some: Points) -> int | None:
        limits = [n for n in (some.capacity_bytes, self.limit_bytes) if n is not None]
        return min(limits) if limits else None

    def _room(self, some: Points) -> int | None:
        capacity = self._capacity(some)
        return None if capacity is None else usable(capacity, self.margin)


def usable(capacity_bytes: int, margin: float) -> int:
    """What may be used of a capacity, so that the margin stays free.

    >>> usable(1000, 0.05)
    950
    """
    return int(capacity_bytes - margin * capacity_bytes)


def swept(
    layers: Sequence[Layer],
    axes: Axes,
    *,
    limit_bytes: int | None = None,
    margin: float = 0.0,
    progress: Callable[[int], None] | None = None,
) -> Swept:
    """A sweep over layers of a run and axes by flag (``micro-batch``; ``model`` for models).

    Raises:
        InputError: none of the combinations can be, or there are too many.
    """
    named = {name.replace("-", "_"): tuple(values) for name, values in axes.items()}
    if size(named) > MAX_COMBINATIONS:
        raise InputError(f"{size(named):,} combinations are more than the {MAX_COMBINATIONS:,} that one sweep holds; take larger steps, or factors (a:b:x2)")
    for key in SIZES:
        for value in named.get(key, ()):
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{value!r} is not a whole number from 1", where=f"--{key.replace('_', '-')}")
    points = tuple(sweep(lambda values: run_of(layers, values), named, progress=progress))
    found = Swept(named, points, limit_bytes, margin)
    if points and all(some.reason is not None for some in points):
        raise InputError(next(iter(found.reasons())))
    return found


def run_of(layers: Sequence[Layer], values: Mapping[str, Any]) -> Run:
    """The run of one combination."""
    models = [Layer({"model": values[MODEL]}, {("model",): "MODEL"})] if MODEL in values else []
    own = {key.replace("_", "-"): value for key, value in values.items() if key != MODEL}
    return merged([*layers, *models, flag_layer({name: _typed(name, value) for name, value in own.items()})])


def size(axes: Axes) -> int:
    """How many combinations there are."""
    return prod(len(values) for values in axes.values())


def _typed(name: str, value: Any) -> str | bool:
    """A value as the command line would have it; of a switch, true or false, however that was written in a list."""
    node = flags().get(name)
    if node is None:
        raise UnknownNameError("key", name, flags(), where="--over")
    if isinstance(node, Leaf) and node.kind != "bool":
        return str(value)
    found = TRUTH.get(str(value).lower())
    if found is None:
        raise InputError(f"{name} is {value!r}; accepted: true or false", where="--over")
    return found


def _order(value: Any) -> tuple[bool, Any, str]:
    return (not isinstance(value, int), value if isinstance(value, int) else 0, str(value))


__all__ = ["MODEL", "Combination", "Swept", "run_of", "size", "swept", "usable"]
