"""Files that files and commands name: found from the working directory, then beside the file, or among the files given; nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import DEEPSPEED, Facts, Link
from memcalc.importers.format import Format, load, recognised
from memcalc.importers.source import Place, Source, read_source

MAX_LINKS = 20
"""No launch names more files."""
STAND_IN = {"sharding.deepspeed": "--deepspeed", "sharding.zero": "--zero"}
"""Keys of a run that say what a DeepSpeed configuration would, where it is not there."""


def follow(facts: Facts) -> Iterator[tuple[Source, Format, float | None]]:
    """The files that were named, as they are found; what they name comes after them.

    Those that were given have been read.

    Raises:
        InputError: one is not there, or lies outside.
    """
    seen: set[str] = set()
    while facts.links:
        link = facts.links.pop(0)
        if len(seen) > MAX_LINKS:
            raise InputError(f"names more than {MAX_LINKS} files", where=link.where)
        if os.path.basename(link.path) in facts.given or link.path in seen:  # noqa: PTH119
            continue
        seen.add(link.path)
        path = located(link)
        if path is None:
            source = _bundled(link)
            if source is None and link.format == "deepspeed" and facts.flagged & STAND_IN.keys():
                flag = next(flag for key, flag in STAND_IN.items() if key in facts.flagged)
                facts.unused.append(f"{link.where}: {link.path!r} is not found; {flag} stands in for it")
                continue
            if source is None:
                raise InputError(f"{link.path!r} is not found from the working directory{_beside(link)}; {_instead(link)}", where=link.where)
            facts.assumed.append(f"{link.where}: {link.path} as {source.name} is, since there is no such file here")
        else:
            source = read_source(path)
        format_ = load(link.format) if link.format else recognised(source)
        yield source, format_, link.rank


def over_bases(facts: Facts, source: Source, key: str, *, trail: tuple[str, ...] = ()) -> Source:
    """A file over those that it names under a key ("": none), the later winning; a map with ``_override_`` stands for the whole of what it overrides.

    References wait until all is merged (nemo_rl/utils/config.py, load_config_with_inheritance).

    Raises:
        InputError: a file that is not there, lies outside, or overrides itself.
    """
    named = source.data.get(key)
    paths = [path for path in (named if isinstance(named, list) else [named]) if isinstance(path, str) and path.endswith((".yaml", ".yml"))]
    where = source.at((key,))
    lines: dict[Place, int | str] = {place: f"{source.name}:{line}" if isinstance(line, int) else line for place, line in source.lines.items()}
    data = {name: value for name, value in source.data.items() if name != key}
    below: dict[str, Any] = {}
    for path in paths:
        found = facts.given.get(os.path.basename(path)) or located(Link(path, where, source.folder))  # noqa: PTH119
        if found is None:
            raise InputError(f"{path!r} is not found from the working directory or beside {source.name}; give it with --from", where=where)
        facts.overridden.add(found)
        real = os.path.realpath(found)
        if real in trail or len(trail) > MAX_LINKS:
            raise InputError(f"overrides itself, through {path}", where=where)
        base = over_bases(facts, read_source(found), key, trail=(*trail, real))
        facts.files.append((base.name, f"overridden by {source.name}"))
        below, lines = _merged(below, base.data), {**base.lines, **lines}
    return source._replace(data=_merged(below, data), lines=lines) if paths or trail else source


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(below)
    for key, value in above.items():
        under = below.get(key)
        if isinstance(value, Mapping):
            own = {name: item for name, item in value.items() if name != "_override_"}
            made[key] = _merged(under, own) if isinstance(under, Mapping) and not value.get("_override_") else own
        else:
            made[key] = value
    return made


def located(link: Link) -> str | None:
    """The path of a link, if there is a file that it may reach.

    Raises:
        InputError: it lies outside the working directory and the file's folder.
    """
    roots = tuple(dict.fromkeys((".", link.folder or ".")))
    reach = [os.path.realpath(root).rstrip(os.sep) + os.sep for root in roots]
    there = [path for root in roots if os.path.isfile(path := os.path.normpath(os.path.join(root, link.path)))]  # noqa: PTH113, PTH118
    inside = [path for path in there if any(os.path.realpath(path).startswith(root) for root in reach)]
    if there and not inside:
        raise InputError(f"{link.path!r} lies outside the working directory{_beside(link)}; give it with --from if it is meant", where=link.where)
    return inside[0] if inside else None


def _instead(link: Link) -> str:
    return "give it with --from, or a stage with --zero" if link.format == "deepspeed" else "give it with --from"


def _beside(link: Link) -> str:
    return f" or beside {link.folder}/" if link.folder not in ("", ".") else ""


def _bundled(link: Link) -> Source | None:
    """A configuration that comes with a framework, by its name."""
    from memcalc.importers.presets import preset

    found = preset(link.path)
    if found is None:
        return None
    name, data = found
    return Source(data, {}, name)


def name_deepspeed(facts: Facts, value: Any, *, where: str, key: str = "deepspeed") -> None:
    """What a trainer's ``deepspeed`` key holds: a path, a map, JSON text, or the name of a bundled configuration."""
    from memcalc.importers.format import read_into
    from memcalc.importers.source import parse_source

    facts.put("~engine", "deepspeed", where)
    if isinstance(value, Mapping):
        rank = facts.rank
        read_into(facts, Source(value, {}, where), load("deepspeed"), rank=DEEPSPEED)
        facts.rank = rank
    elif isinstance(value, str) and value.lstrip().startswith("{"):
        rank = facts.rank
        read_into(facts, parse_source(value, name=where), load("deepspeed"), rank=DEEPSPEED)
        facts.rank = rank
    elif isinstance(value, str) and value.strip():
        facts.links.append(Link(value.strip(), where, facts.folder, "deepspeed"))
    else:
        raise InputError(f"{key} is {value!r}; a path, a map or JSON text was expected", where=where)


__all__ = ["follow", "located", "name_deepspeed", "over_bases"]
