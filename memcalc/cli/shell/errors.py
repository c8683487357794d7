"""From an exception to one line and an exit status."""

from __future__ import annotations

import os
import sys

from memcalc.errors import InputError, MemcalcError, MissingExtraError

FITS, DOES_NOT_FIT, FAILED = 0, 1, 2
"""Exit statuses; the last is bad input, or a fault of memcalc's."""

INTERRUPTED = 130

REPORT = "this is a fault in memcalc, please report it with the command line (MEMCALC_DEBUG=1 shows where it happened)"

MESSAGES: tuple[tuple[type[BaseException], str], ...] = (
    (InputError, "{error}"),
    (MissingExtraError, "{error}"),
    (MemcalcError, "{error}"),
    (KeyboardInterrupt, "interrupted"),
    (MemoryError, "out of memory on this machine"),
    (RecursionError, "input is nested too deeply"),
    (OSError, "{error}"),
    (BaseException, "{kind}: {error}; " + REPORT),
)
"""The first that fits is said."""


def say(error: BaseException) -> int:
    """Say on stderr, in one line, what went wrong; the exit status."""
    template = next(template for kind, template in MESSAGES if isinstance(error, kind))
    text = template.format(kind=type(error).__name__, error=_short(error))
    if os.environ.get("MEMCALC_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    print(f"memcalc: {text}", file=sys.stderr)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 1000 else f"{text[:1000]}…"
