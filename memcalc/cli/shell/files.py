"""Foreign files and commands among the words of a command line, and what of them the answer says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from memcalc.cli.shell.command import Given, Option
from memcalc.cli.shell.runs import layers_of
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.fields import run_keys
from memcalc.specs.read import Layer, merged
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.importers import Imported

FROM = Option(
    "from",
    "a file of another framework (DeepSpeed JSON, accelerate YAML, …); several add up",
    metavar="FILE",
    repeatable=True,
    group="Job",
)
EXPLAIN_INPUTS = Option("explain-inputs", "add where each key comes from: file and line, flag, or default")
TYPED = "the command line of memcalc"
OF_OTHERS = (".toml", ".py", ".sh", ".sbatch", ".slurm")
"""Endings of files that are never memcalc's own."""
ENDINGS = (".yaml", ".yml", ".json", *OF_OTHERS)
ABOUT_MODEL = ("model_type", "architectures", "auto_map")


class Asked(NamedTuple):
    """What a command line asks for.

    Attributes:
        run: the run.
        imported: what files and a command of other frameworks say of it; None where there are none.
        flags: the names of the run's keys that flags give.
        places: where keys stand in run files and among flags.
    """

    run: Run
    imported: Imported | None = None
    flags: tuple[str, ...] = ()
    places: Mapping[str, str] = {}

    def noted(self, estimate: Estimate) -> Estimate:
        """The estimate with what was assumed and what could not be used."""
        if self.imported is None:
            return estimate
        given = set(self.flags)
        assumed = tuple(line for line in self.imported.assumed if line.partition(" ")[0] not in given)
        return replace(estimate, assumptions=(*estimate.assumptions, *assumed), ignored=(*estimate.ignored, *self.imported.unused))


def asked(given: Given, words: Sequence[str] = (), *, command: Sequence[str] = ()) -> Asked:
    """The run of a command line with the files and the command in it.

    Args:
        given: with the flags of `run_options` and `FROM`.
        words: models, run files, files of other frameworks.
        command: a launch.

    Raises:
        InputError: a key or value that cannot be used, no model, or several.
    """
    layers, found = told(given, words, command=command)
    if found is not None and not any("model" in layer.data for layer in layers):
        raise InputError(_nameless(found, command or given.launch), where="model")
    places: dict[str, str] = {}
    for layer in layers if found is None else layers[1:]:
        places |= {".".join(place): where for place, where in layer.places.items()}
        places |= dict.fromkeys((".".join(place) for place in layer.names), TYPED)
    return Asked(merged(layers), found, tuple(key for key, where in places.items() if where == TYPED), places)


def _nameless(found: Imported, command: Sequence[str]) -> str:
    """What files of other frameworks, or a command, are that name no model, and what to type."""
    files = [name for name, title in found.files if name.endswith(ENDINGS)]
    if not files:
        script = next((word for word in command if word.endswith(".py") and os.path.isfile(word)), None)  # noqa: PTH113
        also = f", or what the script calls with --from {script}" if script is not None else ""
        return f"the command names no model: give one before it, as in memcalc estimate llama-3.1-8b -- …{also}"
    kinds = ", ".join(f"{name} is {title}" for name, title in found.files if name in files)
    return f"{kinds}, and no model stands in it: give one beside, as in memcalc estimate llama-3.1-8b {' '.join(files)}"


def told(given: Given, words: Sequence[str] = (), *, command: Sequence[str] = ()) -> tuple[list[Layer], Imported | None]:
    """The layers of a command line, the later winning, with what files and a command of other frameworks say in front; see `asked`.

    Raises:
        InputError: several models or run files, or a file that cannot be read.
    """
    command = command or given.launch
    foreign = [path for path in (given.text("from") or "").split(",") if path]
    foreign += [word for word in words if is_foreign(word)]
    own = [word for word in words if word not in foreign]
    if len(own) > 1:
        raise InputError(f"{own[1]!r} is one argument too many: {own[0]!r} is the run already", where=given.name or None)
    layers = layers_of(given, model=own[0] if own else None)
    if not foreign and not command:
        return layers, None
    from memcalc.importers import import_files

    flags = {".".join(place): value for layer in layers for place, value in layer.leaves()}
    found = import_files(foreign, command=command, env={}, flags=flags)
    return [found.layer, *layers], found


def is_foreign(word: str) -> bool:
    """Whether a word is a file that another framework reads: neither a model nor a run file."""
    if not word.endswith(ENDINGS) or not os.path.isfile(word):  # noqa: PTH113
        return False
    if word.endswith(OF_OTHERS):
        return True
    from memcalc.importers import containers, read_source, recognised

    if word.endswith(".json") and _is_model(word):
        return False
    source = read_source(word)
    own = set(source.data) & set(run_keys().children)
    if own == set(source.data):
        return False
    try:
        if not containers.holds(source.data):
            recognised(source)
    except InputError:
        if own:
            return False  # a run file with a key that there is not
        raise
    return True


def _is_model(path: str) -> bool:
    """Whether a JSON file is a config.json, by its first megabyte."""
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        head = file.read(2**20)
    return any(f'"{key}"' in head for key in ABOUT_MODEL) and '"peft_type"' not in head and '"zero_optimization"' not in head


__all__ = ["EXPLAIN_INPUTS", "FROM", "Asked", "asked", "is_foreign", "told"]
