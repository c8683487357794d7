"""The scenarios, a small file for each, found by its presence.

A file offers ``GROUP``, the heading it stands under, and ``incidents(situation)``, which strikes a run in one or more variants. Its docstring says what
happens, and where the extra bytes are from.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

GROUPS = ("data", "attention", "precision", "loss", "checkpoint", "evaluation", "logging", "experts", "schedule", "allocator")
"""In the order of the table."""


@cache
def every() -> dict[str, ModuleType]:
    """Every scenario by its name, in the order of their groups."""
    found = {info.name.replace("_", "-"): import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)}
    return dict(sorted(found.items(), key=lambda item: (GROUPS.index(item[1].GROUP), item[0])))
