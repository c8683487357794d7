"""The commands: every module beside this package is one, found by its presence. Only the one that is invoked is imported."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

from memcalc.cli.shell.command import Command
from memcalc.errors import UnknownNameError

PACKAGE = "memcalc.cli"


@cache
def names() -> tuple[str, ...]:
    """The names of all commands, sorted."""
    folder = import_module(PACKAGE).__path__
    return tuple(sorted(info.name.replace("_", "-") for info in iter_modules(folder) if not info.ispkg))


def load(name: str) -> Command:
    """The command of a name: `COMMAND` in its module.

    Raises:
        UnknownNameError: there is none.
    """
    if name not in names():
        raise UnknownNameError("command", name, names())
    return cast("Command", import_module(f"{PACKAGE}.{name.replace('-', '_')}").COMMAND)
