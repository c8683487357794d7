"""Frozen data classes whose methods are shared: what users of the standard decorator count on holds."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import pytest

from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class Point:
    """Two numbers."""

    x: int
    y: int = 2

    @cached_property
    def total(self) -> int:
        """Their sum."""
        return self.x + self.y


@dataclass(frozen=True)
class Named(Point):
    """A point with a list."""

    names: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Standard(Named):
    """A standard class may inherit from ours."""

    z: int = 9


@dataclass(frozen=True)
class Back(Standard):
    """And ours from a standard one."""


def test_arguments_by_place_name_and_default() -> None:
    assert (Point(1).y, Point(1, 5).y, Point(y=3, x=1).y) == (2, 5, 3)
    assert Named(1).names == []
    assert Named(1).names is not Named(1).names


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"w": 1})])
def test_wrong_arguments_are_type_errors(arguments: tuple[tuple[int, ...], dict[str, int]]) -> None:
    with pytest.raises(TypeError):
        Point(*arguments[0], **arguments[1])


def test_assignment_and_deletion_are_refused() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x  # type: ignore[misc]
    assert point.total == 3


def test_equal_values_of_one_class_are_equal_and_hash_alike() -> None:
    assert Point(1, 2) == Point(1)
    assert hash(Point(1, 2)) == hash(Point(1))
    assert Point(1) != Named(1)
    assert Point(1) != (1, 2)
    assert repr(Point(1)) == "Point(x=1, y=2)"


def test_the_standard_helpers_work() -> None:
    assert dataclasses.replace(Named(1, names=["a"]), x=4) == Named(4, names=["a"])
    assert [field.name for field in dataclasses.fields(Named(1))] == ["x", "y", "names"]
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2}


def test_standard_and_own_classes_inherit_from_each_other() -> None:
    assert Standard(1).z == 9
    assert Back(1, z=3).z == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        Back(1).x = 2  # type: ignore[misc]


@dataclass
class Counter:
    """A number that changes."""

    value: int = 0
    seen: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        """Takes down where it began."""
        self.seen.append(self.value)


def test_a_class_that_is_not_frozen_can_be_changed_and_not_hashed() -> None:
    counter = Counter(3)
    counter.value += 1
    assert (counter.value, counter.seen) == (4, [3])
    assert Counter(5) == Counter(5)
    with pytest.raises(TypeError):
        hash(counter)
