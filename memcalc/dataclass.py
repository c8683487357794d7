"""`dataclass`, frozen or not, without generated code.

The standard decorator writes and compiles six methods for each class, 0.6 ms of them; some sixty classes of a cold `memcalc estimate` made
that a fifth of its time. Here the fields are collected by the standard one, so that ``fields`` and ``replace`` work, and the methods are
written once for all classes. Type checkers see the standard decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type[T] | None = None, *, frozen: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
        """The decorator; `frozen` is the only option."""
        if cls is not None:
            return _made(cls, frozen=frozen)
        return lambda cls: _made(cls, frozen=frozen)


def _made(cls: type[T], *, frozen: bool) -> type[T]:
    with _thawed(cls):
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    made.__dataclass_params__.frozen = frozen
    for name, method in (_METHODS | _FROZEN if frozen else _METHODS).items():
        if name not in cls.__dict__:
            setattr(made, name, method)
    found: type[T] = made
    return found


@contextmanager
def _thawed(cls: type[Any]) -> Iterator[None]:
    """The standard decorator refuses to mix frozen and other classes; these are told apart by a mark alone."""
    marks = [base.__dict__["__dataclass_params__"] for base in cls.__mro__[1:] if "__dataclass_params__" in base.__dict__]
    marks = [mark for mark in marks if mark.frozen]
    for mark in marks:
        mark.frozen = False
    try:
        yield
    finally:
        for mark in marks:
            mark.frozen = True


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    names = iter(self.__dataclass_fields__.values())
    values = self.__dict__
    for value, field in zip(args, names):  # noqa: B905 (fewer arguments than fields is the rule)
        values[field.name] = value
    if len(args) > len(values):
        raise TypeError(f"{type(self).__name__} takes {len(values)} arguments, {len(args)} were given")
    for field in names:
        name = field.name
        if name in kwargs:
            values[name] = kwargs.pop(name)
        elif field.default is not dataclasses.MISSING:
            values[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[name] = field.default_factory()
        else:
            raise TypeError(f"{type(self).__name__} misses its argument {name!r}")
    if kwargs:
        raise TypeError(f"{type(self).__name__} has no argument {next(iter(kwargs))!r}, or got it twice")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([self.__dict__[name] for name in self.__dataclass_fields__])


def _eq(self: Any, other: Any) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self.__dataclass_fields__)})"


def _set(_self: Any, name: str, _value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS: dict[str, Any] = {"__init__": _init, "__eq__": _eq, "__hash__": None, "__repr__": _repr}
_FROZEN: dict[str, Any] = {"__hash__": _hash, "__setattr__": _set, "__delattr__": _delete}

__all__ = ["dataclass"]
