"""Foreign files as data with the line of every key: YAML, JSON with comments as DeepSpeed's hjson takes it, TOML. Nothing is executed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.specs.files import parse_yaml, read_text

Place = tuple[str, ...]
KIND = "config file"

_COMMENTS = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|\t', re.DOTALL)
_HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}")
_ASSIGNED = re.compile(r"\s*([\w.\"'-]+)\s*=")
_DOCUMENT = re.compile(r"^---(?=[ \t]*(?:#.*)?$)", re.MULTILINE)
MAX_DOCUMENTS = 100
"""No honest file has more."""
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")


class Source(NamedTuple):
    """What somebody gave: a file, or the arguments of a command.

    Attributes:
        data: its top map.
        lines: the line of each key, by its place; of an argument, how it is written.
        name: what messages call it; of a file its path as typed.
        folder: where files that it names may lie, beside the working directory.
    """

    data: Mapping[str, Any]
    lines: Mapping[Place, int | str]
    name: str
    folder: str = ""

    def at(self, place: Place) -> str:
        """``train.yaml:12``: where a key stands, or the nearest above it."""
        while place:
            if place in self.lines:
                line = self.lines[place]
                return line if isinstance(line, str) else f"{self.name}:{line}"
            place = place[:-1]
        return self.name

    def flat(self) -> Iterator[tuple[Place, Any]]:
        """Every value below the maps, with its place; an empty map is a value."""
        yield from _flat(self.data, ())


def read_source(path: str) -> Source:
    """A file by its ending, or by how it begins.

    Raises:
        InputError: it is missing, too large, no text, or not what its ending says; the message names the line.
    """
    return parse_source(read_text(path, what=KIND), name=path, folder=os.path.dirname(path) or ".")  # noqa: PTH120


def parse_source(text: str, *, name: str, folder: str = "") -> Source:
    r"""The same from text; ``.toml`` in the name makes it TOML, ``.py`` a script, whose calls are read.

    >>> parse_source('{"a": 5e8, // many\n "b": {"c": [1, 2,],},}', name="ds.json").at(("b", "c"))
    'ds.json:2'
    """
    if name.endswith(".py"):
        from memcalc.importers.script import read_script

        return Source(*read_script(text, name=name), name, folder)
    if name.endswith(".toml"):
        return Source(_toml(text, name), _toml_lines(text), name, folder)
    if _is_json(text):
        text = _COMMENTS.sub(_blank, text)
    if "apiVersion:" in text and (parts := _DOCUMENT.split(text))[1:]:
        return Source(_manifests(parts, name), {}, name, folder)
    document = parse_yaml(text, where=name)
    return Source(document.data, document.lines, name, folder)


def _manifests(parts: list[str], name: str) -> dict[str, Any]:
    """Several documents of Kubernetes as a list of them, which is a document, too."""
    if len(parts) > MAX_DOCUMENTS:
        raise InputError(f"holds {len(parts):,} documents", where=name)
    items, before = [], 0
    for part in parts:
        if "apiVersion:" in part:
            items.append(parse_yaml("\n" * before + part, where=name).data)
        before += part.count("\n")
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _flat(data: Mapping[str, Any], place: Place) -> Iterator[tuple[Place, Any]]:
    for key, value in data.items():
        here = (*place, str(key))
        if isinstance(value, Mapping) and value:
            yield from _flat(value, here)
        else:
            yield here, value


def _is_json(text: str) -> bool:
    bare = re.match(r"(?:\s|//[^\n]*\n|#[^\n]*\n|/\*.*?\*/)*", text[:100_000], re.DOTALL)
    return text[bare.end() if bare else 0 :].startswith("{")


def _blank(match: re.Match[str]) -> str:
    """A comment as the line breaks in it, a tab as a space, text in quotes as it is."""
    found = match.group()
    return found if found.startswith('"') else " " if found == "\t" else "\n" * found.count("\n")


def _toml(text: str, name: str) -> dict[str, Any]:
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one, and so is what a date out of range raises
        at = _AT_LINE.search(str(error))
        line = f":{at.group(1)}" if at else f":{len(text.splitlines())}" if "end of document" in str(error) else ""
        raise InputError(f"is not TOML: {_AT_LINE.sub('', str(error)).strip()}", where=f"{name}{line}") from None
    except RecursionError:
        raise InputError("is nested too deeply", where=name) from None
    return data


def _toml_lines(text: str) -> dict[Place, int]:
    """Where keys stand, by headers and assignments; a line inside a long text may be taken for one, which only misplaces a message."""
    lines: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _parts(header.group(1))
            lines.setdefault(table, number)
        elif assigned := _ASSIGNED.match(line):
            lines.setdefault((*table, *_parts(assigned.group(1))), number)
    return lines


def _parts(name: str) -> Place:
    return tuple(part.strip(" \"'") for part in name.split("."))


__all__ = ["Source", "parse_source", "read_source"]
