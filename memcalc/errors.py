"""What can go wrong, as one small tree.

MemcalcError
├── InputError          the user's input: message, place, what is accepted; the command line turns it into exit 2
│   ├── UnknownNameError    a name (model, key, optimizer, card, …) that is not known; lists the nearest known ones
│   ├── ModelError          a config.json that does not determine a model
│   └── ShardingError       degrees that do not go together
└── MissingExtraError   an optional dependency is not installed; names the command that installs it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class MemcalcError(Exception):
    """Base of every error that memcalc raises on purpose; ``str()`` of it is one line."""


class InputError(MemcalcError):
    """Input that cannot be used.

    Args:
        message: what is wrong and what is accepted instead.
        where: the file, line, key or flag that holds it.
    """

    def __init__(self, message: str, *, where: str | None = None) -> None:
        self.message = " ".join(message.split())
        self.where = where
        super().__init__(f"{where}: {self.message}" if where else self.message)


class UnknownNameError(InputError):
    """A name outside the known choices; the message names the nearest of them.

    Attributes:
        kind: what it would have been the name of.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str], *, where: str | None = None, hint: str = "") -> None:
        from difflib import get_close_matches

        choices = sorted(known)
        near = get_close_matches(str(name).lower(), choices, n=3, cutoff=0.6)
        if near:
            tail = "did you mean " + ", ".join(near) + "?"
        elif len(choices) <= 12:
            tail = "known: " + ", ".join(choices)
        else:
            tail = f"known: {', '.join(choices[:8])}, … ({len(choices)} in all)"
        super().__init__(f"unknown {kind} {name!r}; {tail}{' ' + hint if hint else ''}", where=where)
        self.kind = kind


class ModelError(InputError):
    """A model description that is incomplete or contradicts itself."""


class ShardingError(InputError):
    """Parallel degrees that do not fit the cards, the model or each other."""


class MissingExtraError(MemcalcError):
    """An optional dependency is needed and not installed.

    Args:
        extra: the name of the extra, e.g. ``trace``.
        purpose: what it is needed for.
    """

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the extra {extra!r}: pip install 'gpu-memcalc[{extra}]'")


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Imports that need an extra.

    Args:
        name, purpose: as of `MissingExtraError`.

    Raises:
        MissingExtraError: what is imported inside is not installed.

    >>> with extra("trace", "this"):
    ...     import a_package_that_is_not_there
    Traceback (most recent call last):
    memcalc.errors.MissingExtraError: this needs the extra 'trace': pip install 'gpu-memcalc[trace]'
    """
    try:
        yield
    except ImportError:
        raise MissingExtraError(name, purpose) from None
