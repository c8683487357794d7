"""Facts: what foreign files and commands say, each with its place and rank, before they are one Run.

A fact's name is a key of the run file (``sharding.tp``), or begins with ``~``: what several formats say together and
`memcalc.importers.settle` makes keys of (``~mixed_precision``, ``~load_dtype``, ``~world``, …).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.specs.files import describe

DEEPSPEED, ACCELERATE, ADAPTER, TRAINER, COMMAND, FLAG = 10, 20, 25, 30, 40, 50
"""Ranks: the higher wins. A framework's defaults stand below every file."""


class Fact(NamedTuple):
    """One value.

    Attributes:
        value: as read.
        where: file and line, or what it follows from.
        rank: the higher wins.
        is_default: nobody wrote it.
    """

    value: Any
    where: str
    rank: float
    is_default: bool = False


class Entry(NamedTuple):
    """A key of a foreign file, for a rule.

    Attributes:
        key: its dotted name.
        value: as read.
        where: file and line.
    """

    key: str
    value: Any
    where: str

    @property
    def word(self) -> str:
        """The value as lower-case text."""
        return str(self.value).strip().lower()

    @property
    def is_on(self) -> bool:
        """The value as a bool.

        Raises:
            InputError: it is none.
        """
        return truth(self.value, name=self.key, where=self.where)

    @property
    def number(self) -> int:
        """The value as a whole number.

        Raises:
            InputError: it is none.
        """
        return whole(self.value, name=self.key, where=self.where)

    @property
    def real(self) -> float:
        """The value as a number, with a fraction or without.

        Raises:
            InputError: it is none.
        """
        made = number(self.value)
        if made is None:
            raise InputError(f"{self.key} is {describe(self.value)}; accepted: a number", where=self.where)
        return made


class Facts:
    """What was found so far; rules write here.

    Attributes:
        flagged: keys of the run that memcalc's own command line gives.
    """

    def __init__(self) -> None:
        self.found: dict[str, Fact] = {}
        self.unused: list[str] = []
        self.assumed: list[str] = []
        self.files: list[tuple[str, str]] = []
        self.links: list[Link] = []
        self.formats: set[str] = set()
        self.rank: float = 0
        self.env: Mapping[str, str] = {}
        self.overrides: Mapping[str, Any] = {}
        self.given: Mapping[str, str] = {}
        self.overridden: set[str] = set()
        self.flagged: frozenset[str] = frozenset()
        self.folder = ""

    def put(self, name: str, value: Any, where: str) -> None:
        """A fact of the source that is being read; one of a higher rank stays."""
        self._put(name, Fact(value, where, self.rank))

    def default(self, name: str, value: Any, framework: str) -> None:
        """What a framework does when nothing is said."""
        fact = Fact(value, f"default of {framework}", self.rank / 1000, is_default=True)
        if name not in self.found or self.found[name].rank < fact.rank:
            self.found[name] = fact

    def derive(self, name: str, value: Any, where: str) -> None:
        """What follows from others, in their place; whoever wrote the key itself keeps it."""
        if name not in self.found or self.found[name].is_default:
            self.found[name] = Fact(value, where, 0.5, is_default=where.startswith("default of") and ";" not in where)

    def override(self, name: str, value: Any, where: str) -> None:
        """What a framework does whatever was written."""
        self.found[name] = Fact(value, where, max(self.rank, self.found[name].rank) if name in self.found else self.rank)

    def _put(self, name: str, fact: Fact) -> None:
        before = self.found.get(name)
        if before is None or fact.rank >= before.rank:
            self.found[name] = fact

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a fact."""
        fact = self.found.get(name)
        return default if fact is None else fact.value

    @property
    def cards(self) -> int:
        """How many cards are known of."""
        each, nodes = self.get("~gpus_per_node", 1), self.get("~nodes", 1)
        return int(self.get("hardware.gpus") or self.get("~world") or (each or 1) * (nodes or 1))

    def where(self, *names: str) -> str:
        """Where facts come from, for what follows from them."""
        return "; ".join(dict.fromkeys(self.found[name].where for name in names if name in self.found)) or "derived"

    def leave(self, entry: Entry, why: str = "") -> None:
        """A key that bears on memory, or may, and cannot be used."""
        value = f" {describe(entry.value)}" if entry.value is not None else ""
        self.unused.append(f"{entry.where}: {entry.key}{value}{f': {why}' if why else ''}")


class Link(NamedTuple):
    """A file that another names, to be read with it.

    Attributes:
        path: as written.
        where: by what.
        folder: of the file that names it.
        format: its format, where that is known.
        rank: of its facts, where it is not its format's.
    """

    path: str
    where: str
    folder: str
    format: str = ""
    rank: float | None = None


Rule = str | Callable[[Facts, Entry], None]
"""Where a key's value goes: the name of a fact, or what writes facts."""

_TRUE, _FALSE = ("true", "yes", "on", "1", "y", "t"), ("false", "no", "off", "0", "n", "f", "none", "null", "")
_NUMBER = re.compile(r"([+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,2})?)\s*([kKmMgG]?)")
_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def truth(value: Any, *, name: str, where: str | None = None) -> bool:
    """A bool however people write it.

    Raises:
        InputError: it is none.
    """
    word = str(value).strip().lower() if value is not None else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise InputError(f"{name} is {describe(value)}; accepted: true or false", where=where)


def whole(value: Any, *, name: str, where: str | None = None) -> int:
    """A whole number however people write it: ``5e8``, ``4_096``, ``1k`` (1000), ``1K`` (1024).

    Raises:
        InputError: it is none.

    >>> whole("5e8", name="n"), whole("1k", name="n"), whole("1K", name="n")
    (500000000, 1000, 1024)
    """
    made = number(value)
    if made is None or made != int(made):
        raise InputError(f"{name} is {describe(value)}; accepted: a whole number", where=where)
    return int(made)


def number(value: Any) -> float | None:
    """A number, or None for what is not one."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return value if abs(value) < 2**63 else None
    match = _NUMBER.fullmatch(str(value).strip()[:40])
    if match is None:
        return None
    digits = match.group(1).replace("_", "")
    made = (int(digits) if digits.lstrip("+-").isdigit() else float(digits)) * _SUFFIXES[match.group(2)]
    return made if abs(made) < 2**63 else None


__all__ = ["ACCELERATE", "ADAPTER", "COMMAND", "DEEPSPEED", "TRAINER", "Entry", "Fact", "Facts", "Link", "Rule", "number", "truth", "whole"]
