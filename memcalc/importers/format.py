"""Format: a foreign format as a table of its keys, and the one reader of such tables. A file in `memcalc.importers.formats` declares one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

from memcalc.errors import InputError, UnknownNameError
from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.source import Place, Source
from memcalc.specs.fields import run_keys
from memcalc.specs.files import describe

PACKAGE = "memcalc.importers.formats"


class Format(NamedTuple):
    """One foreign format.

    Attributes:
        name: of its module.
        title: in messages.
        version: that the table and the defaults hold for.
        rank: of its facts (`memcalc.importers.facts`).
        recognise: whether a file of these keys is one; the first format in order of `order` that says so reads it.
        keys: what each key means, by its dotted name (or a pattern of such names); dashes count as underscores.
        ignored: names and patterns of keys that are known not to bear on memory.
        defaults: facts that hold when nobody says otherwise.
        prepare: makes the values of a source ready (old spellings, nested forms).
        finish: what follows from several keys together; called once all sources are read.
        order: lower is asked first.
        strict: the framework refuses unknown keys at the top, and so does memcalc.
        takes_auto: keys for which "auto" is a value; for others it says nothing.
        bases: the key under which a file names those that it overrides; "" where there is none.
        notes: sentences for the documentation.
    """

    name: str
    title: str
    version: str
    rank: float
    recognise: Callable[[Mapping[str, Any]], bool]
    keys: Mapping[str, Rule]
    ignored: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}
    prepare: Callable[[Source], Source] | None = None
    finish: Callable[[Facts], None] | None = None
    order: int = 50
    strict: bool = False
    takes_auto: tuple[str, ...] = ()
    bases: str = ""
    notes: str = ""


def read_into(facts: Facts, source: Source, format_: Format, *, rank: float | None = None) -> None:
    """Read a source as a format says.

    Raises:
        InputError: a value that its key cannot hold.
    """
    facts.rank = format_.rank if rank is None else rank
    facts.folder = source.folder
    facts.files.append((source.name, format_.title))
    if format_.prepare is not None:
        source = format_.prepare(source)
    for name, value in format_.defaults.items():
        facts.default(name, value, format_.version)
    for place, value in entries(source, format_):
        key = ".".join(place)
        write(facts, format_, Entry(key, value, source.at(place)))
    facts.formats.add(format_.name)


def finish(facts: Facts) -> None:
    """What follows from several keys together, once for each format that was read, the lower rank first."""
    for format_ in sorted(map(load, facts.formats), key=lambda format_: format_.rank):
        if format_.finish is not None:
            facts.rank = format_.rank
            format_.finish(facts)


def entries(source: Source, format_: Format) -> Iterator[tuple[Place, Any]]:
    """The values of a source; a map that the table knows as a whole, and no key of which it knows, stays whole."""
    opened = {key.rpartition(".")[0] for key in format_.keys}
    whole = {key for key in format_.keys if key not in opened and not any(mark in key for mark in "*?[")}
    yield from _entries(source.data, (), whole)


def _entries(data: Mapping[str, Any], place: Place, whole: set[str]) -> Iterator[tuple[Place, Any]]:
    for key, value in data.items():
        here = (*place, str(key))
        if isinstance(value, Mapping) and value and normal(".".join(here)) not in whole:
            yield from _entries(value, here, whole)
        else:
            yield here, value


def write(facts: Facts, format_: Format, entry: Entry) -> None:
    """One key.

    Raises:
        InputError: its value cannot be, or, in a strict format, there is no such key.
    """
    key = normal(entry.key)
    if any(part.startswith("_") and part not in ("_component_", "_target_") for part in key.split(".")):
        return  # a remark
    rule = format_.keys.get(key)
    if rule is None and not ignores(format_, key):
        rule = next((format_.keys[pattern] for pattern in _wild(format_.name) if fnmatchcase(key, pattern)), None)
        if rule is None and entry.value not in (None, {}, []):
            if format_.strict and "." not in key:
                known = {name.partition(".")[0] for name in (*format_.keys, *format_.ignored) if "*" not in name.partition(".")[0]}
                raise UnknownNameError(f"key of {format_.title}", entry.key, known, where=entry.where)
            facts.leave(entry)
    if rule is None or entry.value is None or (isinstance(entry.value, str) and entry.word in ("auto", "null", "none", "") and isinstance(rule, str)):
        return
    first = entry.value[0] if isinstance(entry.value, list) and entry.value else entry.value
    if isinstance(first, str) and first.startswith("$"):
        facts.leave(entry, "nothing that is given says its value")
        return
    if isinstance(rule, str):
        if isinstance(entry.value, Mapping):
            raise InputError(f"{entry.key} is a map; a value was expected", where=entry.where)
        facts.put(rule, entry.value, entry.where)
    elif entry.word != "auto" or key in format_.takes_auto:
        rule(facts, entry)


def normal(key: str) -> str:
    """A key with underscores, whatever it was written with."""
    return key.replace("-", "_")


def ignores(format_: Format, key: str) -> bool:
    """Whether a key is known not to bear on memory."""
    exact, begun, others = _sorted(format_.ignored)
    return key in exact or key.startswith(begun) or any(fnmatchcase(key, pattern) for pattern in others)


@cache
def _sorted(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]:
    """Names, beginnings (``log_*``), and other patterns: a file may have many keys."""
    wild = [pattern for pattern in patterns if "*" in pattern]
    begun = tuple(pattern[:-1] for pattern in wild if pattern.endswith("*") and "*" not in pattern[:-1])
    return frozenset(patterns) - {*wild}, begun, tuple(pattern for pattern in wild if pattern[:-1] not in begun)


@cache
def _wild(name: str) -> tuple[str, ...]:
    """The keys of a format that are patterns."""
    return tuple(key for key in load(name).keys if "*" in key)


@cache
def formats() -> tuple[Format, ...]:
    """Every format, in the order in which they are asked whether a file is theirs."""
    found = [load(info.name) for info in iter_modules(import_module(PACKAGE).__path__) if not info.name.startswith("_")]
    return tuple(sorted(found, key=lambda format_: (format_.order, format_.name)))


def load(name: str) -> Format:
    """The format of a name: `FORMAT` in its module."""
    found: Format = import_module(f"{PACKAGE}.{name}").FORMAT
    return found


def recognised(source: Source) -> Format:
    """The format of a file, by its keys.

    Raises:
        InputError: no format knows them.
    """
    keys = {normal(key): value for key, value in source.data.items()}
    for format_ in formats():
        if format_.recognise(keys):
            return format_
    if not source.data:
        raise InputError("holds nothing", where=source.name)
    first = next(iter(source.data))
    if set(source.data) <= set(run_keys().children):
        raise InputError("is a run file, not one of another framework: give it by itself, or with --config", where=source.at((str(first),)))
    raise InputError(f"is no run file and no file of a framework that memcalc reads: unknown key {describe(first)}", where=source.at((str(first),)))


__all__ = ["Format", "entries", "finish", "formats", "ignores", "load", "normal", "read_into", "recognised", "write"]
