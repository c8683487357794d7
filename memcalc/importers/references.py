"""References in OmegaConf's manner: ``${a.b}``, ``${.sibling}``, ``${oc.select:a.b,default}``, ``${oc.env:NAME,default}``, ``${mul:${a},2}``.

They reach into the file that holds them, and into the environment that the caller gives; nothing else is read, nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from operator import add, floordiv, mul, sub, truediv
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.importers.source import Place, Source
from memcalc.specs.files import parse_value

MAX_DEPTH = 50
"""No honest chain of references is longer."""

MAX_STEPS = 20_000
"""Nor does a file need more of them."""

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_PATH = re.compile(r"\.*[\w-]+(?:(?:\.|\[)[\w-]+\]?)*|\.+")
_UNKNOWN: Any = object()
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?")
_SUM = re.compile(r"['\"]?\s*(-?[\d.]+)\s*(//|[*+/-])\s*(-?[\d.]+)\s*['\"]?")
MAX_NUMBERS = 4
"""No honest reference calculates with more."""
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"*": mul, "+": add, "-": sub, "/": truediv, "//": floordiv}
ARITHMETIC = {
    **dict.fromkeys(("multiply", "mul", "product"), mul), **dict.fromkeys(("add", "sum"), add), **dict.fromkeys(("sub", "subtract"), sub),
    **dict.fromkeys(("div", "divide"), truediv), **dict.fromkeys(("floor_div", "floordiv", "int_div"), floordiv),
}  # fmt: skip
"""Resolvers that frameworks register, by the names that they give them."""


class Unresolved(NamedTuple):
    """A reference that leads nowhere.

    Attributes:
        place: of the value that holds it.
        text: the value.
    """

    place: Place
    text: str


def resolved(source: Source, env: Mapping[str, str] | None = None, *, over: Mapping[str, Any] | None = None) -> tuple[Source, tuple[Unresolved, ...]]:
    """The same without references, and those that could not be resolved, whose values are taken out.

    Args:
        source: a file, or arguments.
        env: what ``${oc.env:…}`` may see.
        over: values of a command that stand in the place of the file's, by their dotted keys.

    Raises:
        InputError: a reference leads back to itself.
    """
    reader = _Resolver(source, env or {}, over or {})
    data = reader.map(source.data, ())
    return source._replace(data=data), tuple(reader.unresolved)


class _Resolver:
    def __init__(self, source: Source, env: Mapping[str, str], over: Mapping[str, Any]) -> None:
        self.source, self.env, self.over = source, env, over
        self.unresolved: list[Unresolved] = []
        self._steps = 0

    def map(self, data: Mapping[str, Any], place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in data.items():
            here = (*place, key)
            made = self.value(value, here, ())
            if made is _UNKNOWN:
                self.unresolved.append(Unresolved(here, str(value)))
            else:
                found[key] = made
        return found

    def value(self, value: Any, place: Place, trail: tuple[Place, ...]) -> Any:
        if isinstance(value, Mapping):
            return self.map(value, place) if not trail else dict(value)
        if isinstance(value, list):
            items = [self.value(item, (*place, str(i)), trail) for i, item in enumerate(value)]
            return _UNKNOWN if any(item is _UNKNOWN for item in items) else items
        if value == "???":
            return _UNKNOWN
        return self._text(value, place, trail) if isinstance(value, str) and "${" in value else value

    def _text(self, text: str, place: Place, trail: tuple[Place, ...]) -> Any:
        if place in trail:
            chain = " → ".join(".".join(step) for step in (*trail[trail.index(place) :], place))
            raise InputError(f"refers to itself: {chain}", where=self.source.at(place))
        if len(trail) > MAX_DEPTH:
            raise InputError(f"follows more than {MAX_DEPTH} references", where=self.source.at(place))
        trail = (*trail, place)
        while match := _INNERMOST.search(text):
            self._steps += 1
            if self._steps > MAX_STEPS or len(text) > 10_000:
                raise InputError("holds too many references", where=self.source.at(place))
            made = self._one(match.group(1).strip(), place, trail)
            if made is _UNKNOWN:
                return _UNKNOWN
            if match.group() == text:
                return made
            text = f"{text[: match.start()]}{'null' if made is None else made}{text[match.end() :]}"
        return _UNKNOWN if "${" in text else text

    def _one(self, inside: str, place: Place, trail: tuple[Place, ...]) -> Any:
        name, colon, rest = inside.partition(":")
        if not colon:
            return self._at(inside, place, trail) if _PATH.fullmatch(inside) else _UNKNOWN
        wanted, comma, default = rest.partition(",")
        if name == "oc.select":
            made = self._at(wanted.strip(), place, trail)
        elif name in ("oc.env", "env"):
            made = self.env.get(wanted.strip(), _UNKNOWN)
        elif name in ARITHMETIC:
            return _calculated(ARITHMETIC[name], [part.strip() for part in rest.split(",")])
        elif name == "eval" and (match := _SUM.fullmatch(rest)):
            return _calculated(OPERATORS[match.group(2)], [match.group(1), match.group(3)])
        else:
            return _UNKNOWN
        if made is _UNKNOWN and comma:
            return parse_value(default.strip(), where=self.source.at(place))
        return made

    def _at(self, path: str, place: Place, trail: tuple[Place, ...]) -> Any:
        """The value at a path, from the top or, with leading dots, from the map that holds the reference."""
        dots = len(path) - len(path.lstrip("."))
        parts = tuple(part for part in re.split(r"[.\[\]]", path) if part)
        target = (*place[: len(place) - dots], *parts) if dots else parts
        if ".".join(target) in self.over:
            return self.over[".".join(target)]
        value: Any = self.source.data
        for part in target:
            if isinstance(value, Mapping) and part in value:
                value = value[part]
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                return _UNKNOWN
        return self.value(value, target, trail)


def _calculated(operation: Callable[[Any, Any], Any], parts: list[str]) -> Any:
    if not all(_NUMBER.fullmatch(part) for part in parts) or not 1 < len(parts) <= MAX_NUMBERS:
        return _UNKNOWN
    numbers = [float(part) if "." in part else int(part) for part in parts]
    try:
        made = reduce(operation, numbers)
    except ZeroDivisionError:
        return _UNKNOWN
    return int(made) if made == int(made) else made


__all__ = ["Unresolved", "resolved"]
