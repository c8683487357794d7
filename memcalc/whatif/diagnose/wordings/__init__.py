"""The wordings of out-of-memory messages, a file for each family of them, found by its presence.

A file offers ``WORDS``, of which a line that begins a message contains one (plain text is found ten times faster than a pattern), ``MARK``, a regular
expression without groups that such a line contains, too, and ``parse(text)``, which reads a message that begins at the mark's line, or answers None.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from memcalc.whatif.diagnose.message import Message


@cache
def families() -> tuple[ModuleType, ...]:
    """Every module of this package, in the order of their names: the general ones come last (``z_…``)."""
    return tuple(import_module(f"{__name__}.{name}") for name in sorted(info.name for info in iter_modules(__path__)))


def words() -> tuple[str, ...]:
    """Plain text, of which every line with the beginning of a message contains some."""
    found = dict.fromkeys(word for module in families() for word in module.WORDS)
    return tuple(word for word in found if not any(other != word and other in word for other in found))


def mark() -> str:
    """A regular expression that every line with the beginning of a message contains."""
    return "|".join(f"(?:{module.MARK})" for module in families())


def parse(text: str) -> Message | None:
    """The message of a text that begins with the line of its mark; None where nobody reads one there."""
    return next(_parsed(text), None)


def _parsed(text: str) -> Iterator[Message]:
    for module in families():
        found = module.parse(text)
        if isinstance(found, Message):
            yield found
