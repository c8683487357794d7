"""The flags that are keys of the run file, and the run that a command line asks for."""

from __future__ import annotations

import os

from memcalc.cli.shell.command import Argument, Given, Option
from memcalc.errors import InputError
from memcalc.specs.fields import ALIASES, Leaf, Section, flags
from memcalc.specs.read import RUN_FILES, Layer, file_layer, flag_layer, merged
from memcalc.specs.run import Run

MODEL = Argument(
    "MODEL",
    "a name of `memcalc models`, a path to a config.json, its folder or a .gguf file, or a Hub id; a run file (.yaml), or a launch command behind --",
)
CONFIG = Option("config", "a run file in YAML; flags win over it", metavar="FILE", group="Job")

METAVARS = {"int": "N", "float": "X", "dtype": "DTYPE", "choice": "NAME", "text": "TEXT", "list": "NAMES", "names": "NAMES", "map": "FILE", "any": "VALUE"}
GROUPS = {"sharding": "Sharding", "hardware": "Hardware", "lora": "Adapters", "offload": "Offload"}
"""Headings in help; sections that are not here bear their own name."""


def run_options() -> tuple[Option, ...]:
    """``--config`` and a flag for every key of the run file but the model, which is the argument."""
    options = [CONFIG]
    for name, node in flags().items():
        if name == node.flag:
            options.append(_option(node))
    return tuple(options)


def run_of(given: Given, *, model: str | None = None) -> Run:
    """The run that a command line asks for.

    Args:
        given: with the flags of `run_options`.
        model: the argument: a model, or a run file.

    Raises:
        InputError: a key or value that cannot be used, or no model.
    """
    return merged(layers_of(given, model=model))


def layers_of(given: Given, *, model: str | None = None) -> list[Layer]:
    """The layers of a command line, the later winning: the run file, the model, the flags."""
    layers: list[Layer] = []
    config = given.text("config")
    if config is not None:
        layers.append(file_layer(config))
    if model is not None and model.endswith(RUN_FILES) and not os.path.isdir(model):  # noqa: PTH112 (answers False where pathlib raises)
        if config is not None:
            raise InputError(f"two run files given: {config} and {model}")
        layers.append(file_layer(model))
    elif model is not None:
        layers.append(Layer({"model": model}, {("model",): "MODEL"}))
    layers.append(flag_layer({name: value for name, value in given.flags.items() if name in flags()}))
    return layers


def _option(node: Leaf | Section) -> Option:
    group = GROUPS.get(node.path[0], node.path[0].capitalize()) if len(node.path) > 1 or isinstance(node, Section) else "Job"
    aliases = ALIASES.get(node.flag, ())
    if isinstance(node, Section):
        return Option(node.flag, f"{node.help}, with their defaults", negatable=True, group=group)
    if node.kind == "bool":
        return Option(node.flag, node.help, negatable=True, aliases=aliases, group=group, default=_shown(node.default))
    choices = (*map(str, node.choices), "none") if node.choices and node.nullable else tuple(map(str, node.choices))
    return Option(
        node.flag,
        node.help,
        metavar="MAP" if node.kind == "map" and not node.is_path else METAVARS[node.kind],
        aliases=aliases,
        choices=tuple(dict.fromkeys(choices)),
        repeatable=node.kind in ("list", "names"),
        group=group,
        default=_shown(node.default),
    )


def _shown(default: object) -> str:
    return "" if default is None else {True: "on", False: "off"}.get(default, str(default)) if isinstance(default, bool) else str(default)
