"""Files and commands that people have, as part of a Run: one file per format in `memcalc.importers.formats`, found by discovery.

    facts = gather(files=["ds.json", "accelerate.yaml"], command=["torchrun", …])
    found = imported(facts)
    run = merged([found.layer, flag_layer(flags)])

Precedence: flag > command > trainer file > adapter > accelerate file > DeepSpeed file > framework default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.importers import containers
from memcalc.importers.facts import FLAG, Facts, whole
from memcalc.importers.format import Format, finish, formats, ignores, load, read_into, recognised
from memcalc.importers.links import follow, over_bases
from memcalc.importers.references import resolved
from memcalc.importers.settle import settle
from memcalc.importers.source import Source, parse_source, read_source
from memcalc.specs.fields import Leaf, Section, find, run_keys
from memcalc.specs.read import Layer


class Origin(NamedTuple):
    """Where a key of the run comes from.

    Attributes:
        key: dotted.
        value: as the run gets it.
        where: file and line, an argument, or what it follows from.
        is_default: nobody wrote it.
    """

    key: str
    value: Any
    where: str
    is_default: bool


class Imported(NamedTuple):
    """What files and a command say.

    Attributes:
        layer: for `memcalc.specs.read.merged`.
        origins: of each key of it.
        unused: keys that bear on memory and could not be used, with their place.
        assumed: framework defaults, with the version they hold for.
        files: what was read, and as what.
    """

    layer: Layer
    origins: tuple[Origin, ...]
    unused: tuple[str, ...]
    assumed: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


BATCH_AND_CARDS = ("hardware.gpus", "micro_batch", "grad_accum", "sharding.dp", "sharding.tp", "sharding.pp", "sharding.cp")
"""Keys that others follow from: a global batch is spread over them."""
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm")
"""Endings of shell scripts."""


def import_files(
    paths: Sequence[str], *, command: Sequence[str] = (), env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Imported:
    """Several files, and a command, as one.

    Args:
        paths: files of any known format, or one shell script that launches.
        command: argv of a launch, environment variables in front allowed.
        env: what ``${oc.env:…}`` may see.
        flags: keys of the run that will win over all of this, by their dotted names; what follows from `BATCH_AND_CARDS` follows from them.

    Raises:
        InputError: a file that cannot be read, is of no known format, or names another that is not there.
    """
    facts = _flagged(flags or {})
    facts.env = dict(env or {})
    read = [read_source(path) for path in paths if not path.endswith(SCRIPTS)]
    command = _script(facts, [path for path in paths if path.endswith(SCRIPTS)], command)
    command = _started(facts, [source for source in read if containers.holds(source.data)], command)
    sources = [(source, recognised(source)) for source in read if not containers.holds(source.data)]
    if command:
        from memcalc.importers.commands import read_command

        read_command(facts, command)
        _refuse_what_does_not_train(facts, given=bool(sources) or any(name != "model" and not name.startswith("hardware.") for name in flags or {}))
    return finished(facts, sources)


def _script(facts: Facts, scripts: Sequence[str], command: Sequence[str]) -> Sequence[str]:
    """The launch of a shell script, or the one that is given."""
    if not scripts:
        return command
    if command or len(scripts) > 1:
        raise InputError("starts a launch of its own: give it without another", where=scripts[-1])
    facts.given = {os.path.basename(scripts[0]): scripts[0]}  # noqa: PTH119
    return ["bash", scripts[0]]


def _started(facts: Facts, files: Sequence[Source], command: Sequence[str]) -> Sequence[str]:
    """The launch of a file that starts containers, or the one that is given."""
    if not files:
        return command
    if command or len(files) > 1:
        raise InputError("starts a launch of its own: give it without another", where=files[-1].name)
    facts.files.append((files[0].name, containers.title(files[0].data)))
    return containers.launch_in(files[0])


def _refuse_what_does_not_train(facts: Facts, *, given: bool) -> None:
    if "~does_not_train" in facts.found and not given:
        name = facts.get("~does_not_train")
        raise InputError(f"{name}: none of its arguments says how it trains; if it does, give its file, or --micro-batch and --seq-len", where="command")


def _flagged(flags: Mapping[str, Any]) -> Facts:
    facts = Facts()
    facts.flagged = frozenset(flags)
    facts.rank = FLAG
    for name, value in flags.items():
        if name in BATCH_AND_CARDS:
            facts.put(name, whole(value, name=name) if isinstance(value, str) else value, "flag")
    return facts


def import_text(text: str, *, name: str = "text", flags: Mapping[str, Any] | None = None) -> Imported:
    """One file from its text; `flags` as in `import_files`."""
    source = parse_source(text, name=name)
    return finished(_flagged(flags or {}), [(source, recognised(source))])


def finished(facts: Facts, sources: Sequence[tuple[Source, Format]]) -> Imported:
    """Facts with what these files say, and what those say that they name."""
    facts.given = {os.path.basename(source.name): source.name for source, _ in sources}  # noqa: PTH119
    complete = [(over_bases(facts, source, format_.bases), format_) for source, format_ in sources]
    for source, format_ in complete:
        if source.name not in facts.overridden:
            _read(facts, source, format_)
    for source, format_, rank in follow(facts):
        _read(facts, over_bases(facts, source, format_.bases), format_, rank=rank)
    finish(facts)
    settle(facts)
    return imported(facts)


def _read(facts: Facts, source: Source, format_: Format, *, rank: float | None = None) -> None:
    source, unresolved = resolved(source, facts.env, over=facts.overrides)
    read_into(facts, source, format_, rank=rank)
    for place, text in unresolved:
        key = ".".join(place)
        if key in format_.keys or not ignores(format_, key):
            facts.unused.append(f"{source.at(place)}: {key} {text[:60]!r} cannot be resolved from what is given")


def imported(facts: Facts) -> Imported:
    """Settled facts as a layer of a run; what a run has no key for is listed as not used."""
    data: dict[str, Any] = {}
    places: dict[tuple[str, ...], str] = {}
    origins: list[Origin] = []
    unused = list(facts.unused)
    for name in sorted(facts.found):
        fact = facts.found[name]
        if name.startswith("~"):
            continue
        place = _place(name)
        node = find(place)
        if not _holds(node, place):
            if not fact.is_default:
                unused.append(f"{fact.where}: {name} {fact.value}: a run has no such key yet")
            continue
        inner = data
        for part in place[:-1]:
            inner = inner.setdefault(part, {})
        inner[place[-1]] = fact.value if isinstance(node, Leaf) else {}
        places[place] = fact.where
        origins.append(Origin(name, fact.value, fact.where, fact.is_default))
    assumed = [f"{origin.key} {_shown(origin.value)}: {origin.where}" for origin in origins if origin.is_default]
    return Imported(Layer(data, {}, places), tuple(origins), tuple(dict.fromkeys(unused)), (*facts.assumed, *assumed), tuple(facts.files))


def _holds(node: Leaf | Section | None, place: tuple[str, ...]) -> bool:
    """Whether a key takes a value: one of its own, or, of a section that may be absent, that it is there."""
    return node.path == place or node.key == "roles" if isinstance(node, Leaf) else node is not None and node.nullable


def _place(name: str) -> tuple[str, ...]:
    """Where a run has a key; what a serving engine calls by a name of its own may stand under that name elsewhere."""
    place = tuple(name.split("."))
    if place[0] != "serving" or isinstance(find(place), Leaf):
        return place
    others = [leaf.path for leaf in run_keys().leaves() if leaf.path[-1] == place[-1]]
    return others[0] if len(others) == 1 else place


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


__all__ = ["Imported", "Origin", "finished", "formats", "import_files", "import_text", "imported", "load", "read_source", "recognised"]
