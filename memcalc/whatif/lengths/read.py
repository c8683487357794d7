"""Lengths from a file, a piece at a time: one a line, a column of csv or jsonl, or a list of quantiles. A file of any size takes the same memory."""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from memcalc.errors import InputError
from memcalc.whatif.lengths.distribution import LONGEST, Distribution, counted, from_quantiles
from memcalc.whatif.lengths.shapes import shape

if TYPE_CHECKING:
    from memcalc.whatif.lengths.distribution import Ints

PIECE, HEAD = 1 << 23, 4096
"""Bytes that are read at a time; and at first, to see what kind of file it is."""
SAMPLES = 100_000
"""Of an epoch, where neither a file nor the caller says how many."""
COLUMNS = ("length", "num_tokens", "tokens", "seq_len", "len", "n_tokens", "token_count", "lengths")
"""Columns that are taken without being named, the first that is there."""
QUANTILE = re.compile(r"^\s*[\"']?(?:p\s*(?P<percent>[\d.]+)|(?P<max>max))[\"']?\s*[:=,\s]\s*(?P<length>[\d.]+)\s*,?\s*$", re.IGNORECASE)


def lengths_of(source: str, *, column: str | None = None, num_samples: int | None = None, done: Callable[[int], None] = lambda _: None) -> Distribution:
    """The lengths that a text names: a shape, quantiles (``p50=512,p99=4096,max=8192``), or a file.

    Args:
        source: as said.
        column: of a csv or jsonl file.
        num_samples: of an epoch, where the samples themselves are not known.
        done: told how many bytes of a file have been read.

    Raises:
        InputError: no such file, or something in it is no length.
    """
    draws = num_samples or SAMPLES
    named = shape(source, num_samples=draws)
    if named is not None:
        return named
    inline = _quantiles(source.split(","), where="--lengths") if "=" in source else None
    if inline is not None:
        return from_quantiles(inline, num_samples=draws, name=source)
    try:
        with Path(source).open("rb") as file:
            head = file.read(HEAD).decode("utf-8", errors="replace")
            file.seek(0)
            points = _quantiles(head.splitlines(), where=source)
            if points is not None:
                return from_quantiles(points, num_samples=draws, name=source)
            return counted(_counts(file, source, head, column, done), name=source)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}; a file, quantiles, or a shape was expected", where=source) from None


# ---------------------------------------------------------------------- inside
def _quantiles(lines: list[str], *, where: str) -> dict[float, float] | None:
    """Lengths by share, where every line is one of them."""
    matches = [QUANTILE.match(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not matches or matches[0] is None:
        return None
    found: dict[float, float] = {}
    for match in matches:
        if match is None:
            raise InputError("a list of quantiles has lines such as p99: 4096 and max: 8192, and no others", where=where)
        share = 1.0 if match["max"] else float(match["percent"]) / 100
        if not 0 <= share <= 1:
            raise InputError(f"p{match['percent']} is no quantile: from p0 to p100", where=where)
        found[share] = float(match["length"])
    return found


def _counts(file: BinaryIO, name: str, head: str, column: str | None, done: Callable[[int], None]) -> Ints:
    """How many samples have each length."""
    import numpy as np

    total: Ints = np.zeros(1, dtype=np.int64)
    for some in _pieces(file, name, head, column, done):
        if not len(some):
            continue
        if int(some.min()) < 0 or int(some.max()) > LONGEST:
            raise InputError(f"{int(some.min() if some.min() < 0 else some.max()):,} is no length: whole numbers from 1 to {LONGEST:,}", where=name)
        more = np.bincount(some, minlength=len(total)).astype(np.int64)
        more[: len(total)] += total
        total = more
    return total


def _pieces(file: BinaryIO, name: str, head: str, column: str | None, done: Callable[[int], None]) -> Iterator[Ints]:
    """The lengths of a piece of the file at a time."""
    first = next((line for line in head.splitlines() if line.strip()), "")
    if first.lstrip().startswith("{"):
        yield from _of_objects(_whole_lines(file, done), name, _key(first, name, column))
    elif re.fullmatch(r"\s*\d+\s*", first) and column is None:
        yield from _of_lines(_whole_lines(file, done), name)
    else:
        yield from _of_rows(_whole_lines(file, done), name, column)


def _whole_lines(file: BinaryIO, done: Callable[[int], None]) -> Iterator[bytes]:
    """Pieces that end with a line."""
    rest = b""
    while piece := file.read(PIECE):
        done(len(piece))
        cut = piece.rfind(b"\n") + 1
        if not cut:
            rest += piece
            continue
        yield rest + piece[:cut]
        rest = piece[cut:]
    if rest:
        yield rest


def _of_lines(pieces: Iterator[bytes], name: str) -> Iterator[Ints]:
    """One length a line."""
    before = 0
    for piece in pieces:
        yield _numbers(piece, name, before)
        before += piece.count(b"\n")


def _numbers(piece: bytes, name: str, before: int) -> Ints:
    """Whole numbers, each on a line of its own."""
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found: Ints = np.fromstring(piece.decode("ascii"), dtype=np.int64, sep="\n")
            if b"-" not in piece and len(found) <= piece.count(b"\n") + 1:
                return found
        except (DeprecationWarning, ValueError):
            pass
    for number, line in enumerate(piece.splitlines(), before + 1):
        if line.strip() and not line.strip().isdigit():
            raise InputError(f"{line[:40].decode(errors='replace')!r} is no length: a whole number from 1 a line", where=f"{name}:{number}")
    return np.asarray([int(line) for line in piece.split()], dtype=np.int64)


def _key(first: str, name: str, column: str | None) -> str:
    """The key of an object that holds the length."""
    try:
        known = list(json.loads(first))
    except ValueError:
        known = re.findall(r'"(\w+)"\s*:', first)
    return _column(known, name, column)


def _column(known: list[str], name: str, column: str | None) -> str:
    if column is not None and column in known:
        return column
    if column is None:
        found = next((usual for usual in COLUMNS if usual in known), None)
        if found is not None:
            return found
    raise InputError(f"which column holds lengths? give --lengths-column, one of {', '.join(known[:12])}", where=name)


def _of_objects(pieces: Iterator[bytes], name: str, key: str) -> Iterator[Ints]:
    """One JSON object a line: its key by a pattern where every line has it once, else line by line; a list or a text counts by its length."""
    import numpy as np

    pattern = re.compile(rb'"' + re.escape(key.encode()) + rb'"\s*:\s*(\d+)\s*[,}]')
    before = 0
    for piece in pieces:
        found = pattern.findall(piece)
        num_lines = piece.count(b"\n") + (not piece.endswith(b"\n"))
        if len(found) == num_lines:
            yield np.fromstring(b" ".join(found).decode(), dtype=np.int64, sep=" ")
        else:
            yield np.asarray([_length(line, key, f"{name}:{n}") for n, line in enumerate(piece.splitlines(), before + 1) if line.strip()], dtype=np.int64)
        before += num_lines


def _length(line: bytes, key: str, where: str) -> int:
    try:
        value = json.loads(line)[key]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"no JSON object with the key {key!r}", where=where) from None
    if isinstance(value, list):
        return len(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InputError(f"{key} is {str(value)[:40]!r}: a whole number, or a list of tokens, was expected", where=where)


def _of_rows(pieces: Iterator[bytes], name: str, column: str | None) -> Iterator[Ints]:
    """A column of csv; its first line names the columns."""
    import numpy as np

    at, before = -1, 0
    for piece in pieces:
        rows = csv.reader(io.StringIO(piece.decode("utf-8", errors="replace")))
        if at < 0:
            try:
                header = [cell.strip() for cell in next(rows, [])]
            except csv.Error:
                raise InputError("is no table of lengths, nor a length a line", where=name) from None
            at = header.index(_column(header, name, column))
            before = 1
        try:
            cells = [row[at] for row in rows if row]
            found = np.asarray(cells, dtype=np.int64) if cells else np.zeros(0, dtype=np.int64)
        except (ValueError, IndexError, OverflowError, csv.Error) as error:
            raise InputError(f"a row from line {before + 1:,} on has no length in that column: {error}", where=name) from None
        before += len(cells)
        yield found
