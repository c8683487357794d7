"""Where a report goes: stdout or a file, with colours or without, how wide. Data alone goes to stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from memcalc.cli.shell.command import Given, Option
from memcalc.errors import InputError

if TYPE_CHECKING:
    from memcalc.report.style import Style

MIN_WIDTH, WIDTH = 40, 100


def format_option(*formats: str) -> Option:
    """``--format`` with these choices; the first is the default."""
    return Option("format", "how the answer is written", metavar="FORMAT", choices=formats, default=formats[0], aliases=("output-format",))


OUT_FILE = Option("out-file", "write the answer to a file instead of stdout", metavar="FILE", short="o")
QUIET = Option("quiet", "only the last line: the peak, and whether it fits", short="q")


class Writer(Protocol):
    """How answers of one kind are written: a module of `memcalc.report`."""

    @property
    def text(self) -> Callable[[Any, Style], str]:
        """As a table for people."""

    @property
    def as_json(self) -> Callable[[Any], str]:
        """For programs."""

    @property
    def markdown(self) -> Callable[[Any], str]:
        """For comments and pages."""

    @property
    def comma_separated(self) -> Callable[[Any], str]:
        """For spreadsheets."""


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

    def report(self, answer: Any, writer: Writer) -> None:
        """Write an answer in the format that was asked for.

        Args:
            answer: what a question found.
            writer: the module of `memcalc.report` that is for such answers.

        Raises:
            InputError: the file cannot be written.
        """
        from memcalc.report.style import Style

        made: dict[str, Callable[[], str]] = {
            "table": lambda: writer.text(answer, Style(self.width, self.colour)),
            "json": lambda: writer.as_json(answer),
            "markdown": lambda: writer.markdown(answer),
            "csv": lambda: writer.comma_separated(answer),
        }
        self.write(made[self.format]())

    def write(self, text: str) -> None:
        """Write a text.

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
