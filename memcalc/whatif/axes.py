"""What a key of a run is swept over: lists, ranges and factors, as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from memcalc.errors import InputError
from memcalc.specs.coerce import coerce
from memcalc.specs.fields import Leaf, flags

MAX_VALUES = 10_000_000
"""No axis has more values."""

WHOLE = ("sharding.pipeline_model_parallel_layout",)
"""Keys whose own text holds commas; lists and maps do, too."""

RANGE = re.compile(r"(\d+):(\d+)(?::(x?)(\d+))?")


def parse_axis(text: str, *, where: str | None = None) -> tuple[int | str, ...]:
    """The values of ``1,2,8``, ``1:4`` (both ends are in it), ``128:512:128`` or ``1024:8192:x2``, and of such parts with commas between; each once.

    Raises:
        InputError: a range that is empty or goes nowhere, or too many values.

    >>> parse_axis("1,2,8:16:4"), parse_axis("1024:8192:x2"), parse_axis("none,full")
    ((1, 2, 8, 12, 16), (1024, 2048, 4096, 8192), ('none', 'full'))
    """
    found: dict[int | str, None] = {}
    for part in (piece.strip() for piece in text.split(",")):
        for value in _values(part, text, where):
            found[value] = None
            if len(found) > MAX_VALUES:
                raise InputError(f"{text!r} has more than {MAX_VALUES:,} values", where=where)
    return tuple(found)


def is_axis(name: str, text: object) -> bool:
    """Whether the value of a flag names several, as far as its key can have one of several."""
    node = flags().get(name)
    if not isinstance(text, str) or not isinstance(node, Leaf) or node.kind in ("list", "names", "map", "any") or node.key in WHOLE:
        return False
    return "," in text or (node.kind in ("int", "float") and ":" in text)


def split_axes(given: Mapping[str, str | bool]) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str | bool]]:
    """Flags with several values as axes, by flag, and the other flags as they are."""
    axes = {name: axis_of(name, str(value), where=f"--{name}") for name, value in given.items() if is_axis(name, value)}
    return axes, {name: value for name, value in given.items() if name not in axes}


def axis_of(name: str, text: str, *, where: str) -> tuple[int | str, ...]:
    """The values of a flag, each of which its key accepts.

    Raises:
        InputError: it does not accept one of them.
    """
    node, values = flags().get(name), parse_axis(text, where=where)
    if isinstance(node, Leaf):
        numbers = [value for value in values if isinstance(value, int)]
        ends = {min(numbers), max(numbers)} if numbers and node.kind in ("int", "float") else set(numbers)  # what lies between is as good
        for value in (*ends, *(value for value in values if not isinstance(value, int))):
            coerce(node, str(value), name=where, where=None)
    return values


def _values(part: str, text: str, where: str | None) -> Iterator[int | str]:
    if not part:
        raise InputError(f"{text!r} has an empty part; write values with commas between, a:b, a:b:step or a:b:xfactor", where=where)
    if part.isascii() and part.isdigit():
        yield int(part)
        return
    match = RANGE.fullmatch(part)
    if match is None:
        if ":" in part:
            raise InputError(f"{part!r} is not a range of whole numbers; write a:b, a:b:step or a:b:xfactor", where=where)
        yield part
        return
    first, last = int(match[1]), int(match[2])
    factor, by = match[3] == "x", int(match[4] or 1)
    if first > last or by < (2 if factor else 1) or (factor and first == 0):
        raise InputError(f"{part!r} goes nowhere; the first value is at most the last, a step is at least 1, a factor at least 2", where=where)
    if not factor and (last - first) // by >= MAX_VALUES:
        raise InputError(f"{part!r} has more than {MAX_VALUES:,} values", where=where)
    value = first
    while value <= last:
        yield value
        value = value * by if factor else value + by


__all__ = ["MAX_VALUES", "axis_of", "is_axis", "parse_axis", "split_axes"]
