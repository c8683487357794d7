"""Where each key of a run comes from: a flag, a file and its line, a framework's default, or memcalc's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.report.style import columns, shorten
from memcalc.report.tables import grid
from memcalc.specs.fields import Section, run_keys
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.importers import Origin

HEAD = ("key", "value", "from")


class Input(NamedTuple):
    """One key.

    Attributes:
        key: dotted.
        value: of the run.
        where: where it was read.
    """

    key: str
    value: Any
    where: str


def rows_of(run: Run, origins: Iterable[Origin], given: Mapping[str, str]) -> tuple[Input, ...]:
    """Every key that somebody gave, and those that a framework's default decides; memcalc's own defaults are left out.

    Args:
        run: what was made of all.
        origins: of keys from other frameworks' files and commands.
        given: where keys stand in run files and among flags, which win over those.
    """
    known = {origin.key: origin.where for origin in origins} | dict(given)
    found = []
    for leaf in run_keys().leaves():
        value, is_set = _value(run, leaf.path)
        below = dict.fromkeys(where for key, where in known.items() if key.startswith(f"{leaf.key}."))
        where = known.get(leaf.key) or "; ".join(below)
        if where or is_set:
            found.append(Input(leaf.key, value, where or "argument"))
    return (*found, *(Input(key, value=True, where=known[key]) for key in _sections(run) if key in known))


def _sections(run: Run) -> Iterator[str]:
    """Sections that are there, and might not be."""
    for key, node in run_keys().children.items():
        if isinstance(node, Section) and node.nullable and getattr(run, key) is not None:
            yield key


def added(text: str, rows: Sequence[Input], *, format_name: str) -> str:
    """An answer with these rows in its own format."""
    if format_name == "json":
        data = json.loads(text)
        data["inputs"] = [row._asdict() for row in rows]
        return json.dumps(data, indent=1, default=str)
    cells = [(row.key, shorten(_shown(row.value), 48), row.where) for row in rows]
    if format_name == "table":
        return "\n".join([text.rstrip("\n"), "", *columns([HEAD, *cells])])
    return f"{text.rstrip(chr(10))}\n\n{grid(cells, HEAD, numbers_from=len(HEAD))}"


def _value(run: Run, path: tuple[str, ...]) -> tuple[Any, bool]:
    held: Any = run
    is_set = False
    for name in path:
        if held is None:
            return None, False
        is_set = name in held.model_fields_set
        held = getattr(held, name)
    return held, is_set


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else json.dumps(value, default=str) if isinstance(value, (dict, list, tuple)) else str(value)


__all__ = ["Input", "added", "rows_of"]
