"""How text is dressed: one unit throughout, columns, bars, and colours where there is a terminal for them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from memcalc.units import GiB, MiB

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
EIGHTHS = " ▏▎▍▌▋▊▉█"


class Style(NamedTuple):
    """Attributes: `width` of the page in columns; whether to use `colour`."""

    width: int = 100
    colour: bool = False

    def paint(self, text: str, *codes: str) -> str:
        """`text` in a colour, where there are colours."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.colour and codes and text.strip() else text


class Unit(NamedTuple):
    """The unit of a whole report.

    Attributes:
        name: as it stands beside numbers.
        bytes: how many it is.
    """

    name: str
    bytes: int

    def number(self, num_bytes: float) -> str:
        """Two digits after the point.

        >>> unit_for(5 * 2**30).number(3 * 2**29)
        '1.50'
        """
        text = f"{num_bytes / self.bytes:,.2f}"
        return "0.00" if text == "-0.00" else text

    def signed(self, num_bytes: float) -> str:
        """With its sign, which zero has not."""
        text = self.number(num_bytes)
        return text if text == "0.00" else text.replace("-", "−") if num_bytes < 0 else f"+{text}"

    def full(self, num_bytes: float) -> str:
        """With the unit."""
        return f"{self.number(num_bytes)} {self.name}"

    def visible(self, num_bytes: float) -> bool:
        """Whether two digits show anything of it."""
        return self.number(num_bytes) != "0.00"


def unit_for(num_bytes: float) -> Unit:
    """GiB, or MiB for what is below one GiB in all."""
    return Unit("GiB", GiB) if num_bytes >= GiB else Unit("MiB", MiB)


def bar(share: float, width: int) -> str:
    """A share of one as a bar.

    >>> bar(0.5, 4)
    '██'
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (EIGHTHS[rest] if rest else "")


def display_width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` filled to a width; numbers stand at the right."""
    space = " " * max(0, width - display_width(text))
    return space + text if right else text + space


def shorten(text: str, width: int) -> str:
    """`text` cut to a width, with a mark where it was."""
    return text if display_width(text) <= width else text[: max(0, width - 1)] + "…"


def wrap(text: str, width: int, *, indent: str = "") -> str:
    """Lines of at most a width; those after the first are indented."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and display_width(line) + 1 + display_width(word) > width - len(indent):
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return f"\n{indent}".join([*lines, line])


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[bool] = (), gap: int = 2, width: int | None = None) -> list[str]:
    r"""Rows of cells as lines.

    Args:
        rows: of cells.
        right: which columns hold numbers.
        gap: columns of space between.
        width: of the page; where the rows are wider, the widest columns of words are wrapped, and such a row is several lines in one text.

    >>> columns([["a", "one two three"]], width=8)
    ['a  one\n   two\n   three']
    """
    count = max((len(row) for row in rows), default=0)
    widths = [max((display_width(row[i]) for row in rows if i < len(row)), default=0) for i in range(count)]
    at_right = [*right, *([False] * (count - len(right)))]
    if width is not None:
        _narrow(widths, [i for i in range(count) if not at_right[i]], rows, width - gap * (count - 1))
    return [_row(row, widths, at_right, " " * gap) for row in rows]


def words_below(rows: Sequence[Sequence[str]], *, right: Sequence[bool], width: int, least: int, indent: str = "    ") -> list[str]:
    r"""Rows whose last cell is a sentence: beside the others where the page leaves it room, or else under them, without its heading.

    Args:
        rows: of cells, the heading first.
        right: which columns hold numbers.
        width: of the page.
        least: columns that the sentence needs beside the others, unless it is shorter.
        indent: of a sentence under its row.

    >>> words_below([["a", "b"], ["1", "one two three"]], right=[True, False], width=12, least=10)
    ['a', '1\n    one two\n    three']
    """
    longest = max((display_width(row[-1]) for row in rows), default=0)
    heads = columns([row[:-1] for row in rows], right=right[:-1], width=width)
    if max(display_width(part) for line in heads for part in line.split("\n")) + 2 + min(longest, least) <= width:
        return columns(rows, right=right, width=width)
    told = (f"\n{indent}{wrap(row[-1], width, indent=indent)}" if row[-1] and i else "" for i, row in enumerate(rows))
    return [line + below for line, below in zip(heads, told, strict=True)]


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[bool], gap: str) -> str:
    cells = [wrap(cell, widths[i]).split("\n") if display_width(cell) > widths[i] else [cell] for i, cell in enumerate(row)]
    turns = range(max(map(len, cells), default=0))
    lines = ([pad(cell[turn] if turn < len(cell) else "", widths[i], right=right[i]) for i, cell in enumerate(cells)] for turn in turns)
    return "\n".join(gap.join(line).rstrip() for line in lines)


def _narrow(widths: list[int], able: Sequence[int], rows: Sequence[Sequence[str]], room: int) -> None:
    """Take from the widest of these columns, as far as their longest word, until all are within the room."""
    least = {i: max((display_width(word) for row in rows if i < len(row) for word in row[i].split(" ")), default=0) for i in able}
    while sum(widths) > room:
        wide = [i for i in able if widths[i] > max(least[i], 1)]
        if not wide:
            return
        widths[max(wide, key=lambda i: widths[i])] -= 1
