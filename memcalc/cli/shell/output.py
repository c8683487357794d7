"""Where a report goes: stdout or a file, with colours or without, how wide. Data alone goes to stdout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from memcalc.cli.shell.command import Given, Option
from memcalc.errors import InputError

MIN_WIDTH, WIDTH = 40, 100


def format_option(*formats: str) -> Option:
    """``--format`` with these choices; the first is the default."""
    return Option("format", "how the answer is written", metavar="FORMAT", choices=formats, default=formats[0], aliases=("output-format",))


OUT_FILE = Option("out-file", "write the answer to a file instead of stdout", metavar="FILE", short="o")
QUIET = Option("quiet", "only the last line: the peak, and whether it fits", short="q")


class Sink(NamedTuple):
    """Where an answer goes.

    Attributes:
        format: as asked for.
        path: a file, or None for stdout.
        width: columns of a table.
        colour: whether to use colours.
        quiet: the last line alone.
    """

    format: str
    path: str | None
    width: int
    colour: bool
    quiet: bool = False

    def write(self, text: str) -> None:
        """Write an answer.

        Raises:
            InputError: the file cannot be written.
        """
        text = text if text.endswith("\n") or not text else f"{text}\n"
        if self.path is None:
            _to_stdout(text)
            return
        try:
            Path(self.path).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be written: {getattr(error, 'strerror', None) or error}", where=self.path) from None


def sink(given: Given, *, default: str = "table") -> Sink:
    """The sink that a command line asks for."""
    path = given.text("out-file")
    path = None if path == "-" else path
    return Sink(given.text("format") or default, path, _width(), path is None and _colour(), given.on("quiet"))


def _to_stdout(text: str) -> None:
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader such as head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _colour() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return max(int(columns), MIN_WIDTH)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, MIN_WIDTH)
    except (OSError, ValueError):
        return WIDTH
