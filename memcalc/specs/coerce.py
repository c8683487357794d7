"""Values as people write them, made what a key holds: YAML reads ``5e8`` and ``1e-4`` as text and ``no`` as false, flags are all text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.fields import Leaf
from memcalc.specs.files import describe

_NUMBER = re.compile(r"[+-]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_NAMES = re.compile(r"[\w.\-*]+")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")


def coerce(leaf: Leaf, value: Any, *, name: str, where: str | None = None) -> Any:
    """A value as its key wants it.

    Args:
        leaf: the key.
        value: as a file, a flag or a caller gave it.
        name: what messages call the key.
        where: file and line.

    Raises:
        InputError: it is not what the key accepts.
    """
    if leaf.nullable and _means_null(leaf, value):
        return None
    try:
        made = _CONVERTERS[leaf.kind](leaf, value)
    except UnknownNameError as error:
        raise InputError(error.message, where=where or name) from None
    if made is _REFUSED:
        also = " or null" if leaf.nullable else ""
        raise InputError(f"{name} is {describe(value)}; accepted: {leaf.accepts}{also}", where=where)
    return made


_REFUSED: Any = object()


def _means_null(leaf: Leaf, value: Any) -> bool:
    if value is None:
        return True
    if value is False:
        return leaf.kind != "bool"
    return isinstance(value, str) and value.strip().lower() in ("null", "none", "~") and value.strip().lower() not in leaf.choices


def _number(value: Any) -> Any:
    """A number, or what is not one."""
    if isinstance(value, str) and len(value) <= 40 and _NUMBER.fullmatch(value.strip()):
        text = value.strip().replace("_", "")
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return _REFUSED if isinstance(value, bool) or not isinstance(value, (int, float)) else value


def _int(leaf: Leaf, value: Any) -> Any:
    made = _number(value)
    if isinstance(made, float):
        made = int(made) if made.is_integer() else _REFUSED
    return made if made is _REFUSED or _within(leaf, made) else _REFUSED


def _float(leaf: Leaf, value: Any) -> Any:
    made = _number(value)
    return made if made is _REFUSED or _within(leaf, made) else _REFUSED


def _within(leaf: Leaf, value: float) -> bool:
    bounds = leaf.bounds
    return (
        value >= bounds.get("ge", value)
        and value <= bounds.get("le", value)
        and (("gt" not in bounds) or value > bounds["gt"])
        and (("lt" not in bounds) or value < bounds["lt"])
        and value - value == 0  # neither infinite nor not a number
    )


def _bool(_leaf: Leaf, value: Any) -> Any:
    if isinstance(value, str):
        word = value.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else _REFUSED
    return value if isinstance(value, bool) else _REFUSED


def _choice(leaf: Leaf, value: Any) -> Any:
    if isinstance(value, bool) and value not in leaf.choices:
        value = "no" if value is False else value
    for choice in leaf.choices:
        if value == choice or (isinstance(value, str) and value.strip() == str(choice)):
            return choice
    return "none" if value == "no" and "none" in leaf.choices else _REFUSED


def _text(_leaf: Leaf, value: Any) -> Any:
    return value if isinstance(value, str) and value.strip() else _REFUSED


def _dtype(_leaf: Leaf, value: Any) -> Any:
    from memcalc.units import dtype_name

    return dtype_name(value) if isinstance(value, str) else _REFUSED


def _list(leaf: Leaf, value: Any) -> Any:
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        return tuple(parts) if len(parts) > 1 and all(map(_NAMES.fullmatch, parts)) else _text(leaf, value)
    if isinstance(value, (list, tuple)):
        value = [str(item) if type(item) is int else item for item in value]  # numbers of layers
    items = isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(item, str) and item for item in value)
    return tuple(value) if items else _REFUSED


def _names(leaf: Leaf, value: Any) -> Any:
    made = _list(leaf, value)
    return (made,) if isinstance(made, str) else made


def _map(leaf: Leaf, value: Any) -> Any:
    if isinstance(value, str):
        return value if leaf.is_path and value.strip() else _REFUSED
    return value if isinstance(value, dict) else _REFUSED


_CONVERTERS: dict[str, Callable[[Leaf, Any], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "choice": _choice,
    "text": _text,
    "dtype": _dtype,
    "list": _list,
    "names": _names,
    "map": _map,
    "any": lambda _leaf, value: value,
}
