"""What layers are made of, one file per ``model_type``.

A family is a module here with

- ``MODEL_TYPES``: the ``model_type`` values that it reads; the first is the module's name,
- ``ARCHITECTURES``: class names in ``architectures`` that name one of them where a file has no ``model_type``,
- ``spec(config)``: from a `memcalc.models.config.Config` to a `memcalc.specs.model.ModelSpec`.

It is found by its presence. Modules whose name begins with an underscore are shared parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol, cast

from memcalc.errors import ModelError, UnknownNameError
from memcalc.models.config import Config
from memcalc.specs.model import ModelSpec


class Family(Protocol):
    """A module of this package."""

    MODEL_TYPES: tuple[str, ...]
    ARCHITECTURES: Mapping[str, str]
    spec: Callable[[Config], ModelSpec]


def family(model_type: str, *, where: str | None = None) -> Family:
    """The family that reads a ``model_type``; only its own module is imported where it bears that name.

    Raises:
        UnknownNameError: no family does; the message names the nearest ones and the way out.
    """
    module = model_type.replace("-", "_")
    if module in _module_names():
        found = _load(module)
        if model_type in found.MODEL_TYPES:
            return found
    for name in _module_names():
        if model_type in _load(name).MODEL_TYPES:
            return _load(name)
    raise UnknownNameError("model_type", model_type, model_types(), where=where, hint="(a model without formulas can be measured: `memcalc trace MODEL`)")


def model_types() -> tuple[str, ...]:
    """Every ``model_type`` that can be read."""
    return tuple(sorted(known for name in _module_names() for known in _load(name).MODEL_TYPES))


def infer_model_type(data: Mapping[str, Any], *, where: str) -> str:
    """The ``model_type`` of a file: what it says, or what its ``architectures`` stands for.

    Raises:
        ModelError: it says neither, or nothing that is known.
    """
    stated = data.get("model_type")
    if stated is not None:
        if not isinstance(stated, str) or not stated:
            raise ModelError(f"model_type is {stated!r}; a name such as llama was expected", where=where)
        return stated
    architectures = data.get("architectures")
    names = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    known = _architectures()
    found = {known[name] for name in names if name in known}
    if len(found) == 1:
        return found.pop()
    if not names:
        raise ModelError('has neither model_type nor architectures: add "model_type", such as "llama", if this is a model\'s config.json', where=where)
    raise ModelError(f'has no model_type, and its architectures {", ".join(names)} does not name one: add "model_type", such as "llama"', where=where)


@cache
def _module_names() -> tuple[str, ...]:
    return tuple(info.name for info in iter_modules(__path__) if not info.name.startswith("_"))


def _load(name: str) -> Family:
    return cast("Family", import_module(f"{__name__}.{name}"))


@cache
def _architectures() -> dict[str, str]:
    return {cls: model_type for name in _module_names() for cls, model_type in _load(name).ARCHITECTURES.items()}
