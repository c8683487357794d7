"""The catalogue: models by the names people type, one config.json each in ``configs/models``.

Beside the architecture an entry holds ``"memcalc": {"hub_ids": […], "aliases": […], "params": N}``: repositories whose config.json
describes the same architecture, other names of it, and how many parameters the model's own code makes of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from memcalc.dataclass import dataclass
from memcalc.errors import InputError, UnknownNameError
from memcalc.models.files import read_json
from memcalc.resources import config_path

FOLDER = "models"


@dataclass(frozen=True)
class Entry:
    """One model of the catalogue.

    Attributes:
        name: what people type.
        model_type: Hugging Face's.
        hub_ids: repositories of the same architecture.
        aliases: other names.
        params: exact count of the model's own code, where it is known.
    """

    name: str
    model_type: str
    hub_ids: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    params: int | None = None


def names() -> tuple[str, ...]:
    """Every name, sorted so that sizes count up."""
    found = (file.removesuffix(".json") for file in os.listdir(config_path(FOLDER)) if file.endswith(".json"))  # noqa: PTH208 (fast)
    return tuple(sorted(found, key=_by_size))


def path_of(name: str) -> Path | None:
    """The file of an exact name, in any case; only this file is looked at."""
    path = config_path(FOLDER, f"{name.lower()}.json")
    return path if _is_plain(name) and os.path.isfile(path) else None  # noqa: PTH113 (answers False where pathlib raises)


def entries(text: str = "") -> tuple[Entry, ...]:
    """The entries whose name, type, aliases or repositories hold every word of `text`, in any case."""
    words = text.lower().split()
    return tuple(e for e in _all() if all(w in " ".join((e.name, e.model_type, *e.hub_ids, *e.aliases)).lower() for w in words))


def resolve(name: str) -> str | None:
    """The catalogue's name for a model called otherwise: a repository, its last part, an alias, or a name spelt with other marks.

    Args:
        name: ``meta-llama/Llama-2-7b-hf``, ``Llama-2-7b-hf``, ``llama2_7b``.

    Raises:
        InputError: several entries go by that name.
    """
    if not re.fullmatch(r"[\w ./-]+", name):
        return None
    if "/" in name:
        matches = [e.name for e in entries() if name.lower() in map(str.lower, e.hub_ids)]
    else:
        wanted = parts(name)
        matches = [e.name for e in entries() if wanted in {parts(known) for known in spellings(e)}]
    if len(matches) > 1:
        raise InputError(f"several models are called {name!r}: {', '.join(matches)}", where="model")
    return matches[0] if matches else None


def unknown(name: str, *, near: str = "") -> InputError:
    """The error for a name that nothing answers to.

    Args:
        name: as typed.
        near: what to give instead, where that is known better than by its letters.
    """
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    others = "(or give a Hub id such as org/name, or a path to a config.json; `memcalc models` lists the names)"
    return InputError(f"unknown model {shown!r}; {near} {others}") if near else UnknownNameError("model", shown, names(), hint=others)


@cache
def _all() -> tuple[Entry, ...]:
    return tuple(map(_entry, names()))


def _entry(name: str) -> Entry:
    data = read_json(config_path(FOLDER, f"{name}.json"))
    about: dict[str, Any] = data.get("memcalc", {})
    return Entry(name, data["model_type"], tuple(about.get("hub_ids", ())), tuple(about.get("aliases", ())), about.get("params"))


def spellings(entry: Entry) -> Iterator[str]:
    """Every name of an entry, repositories without their owners."""
    yield entry.name
    yield from entry.aliases
    yield from (hub_id.rpartition("/")[2] for hub_id in entry.hub_ids)


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[\w.\-]+", name) is not None and not name.startswith(".")


def parts(name: str) -> tuple[str, ...]:
    """Words and numbers: what is left when only marks and case differ (``llama2_7b`` is ``llama-2-7b``, ``opt-13b`` not ``opt-1.3b``)."""
    return tuple(re.findall(r"\d+(?:\.\d+)?|[a-z]+", name.lower()))


def _by_size(name: str) -> tuple[Any, ...]:
    """Sort key: the numbers in a name by value, millions (``560m``) as parts of a billion."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(m(?![a-z]))?|([^\d]+)", name)
    return tuple((1, 0.0, word) if word else (0, float(number) / (1000 if millions else 1), "") for number, millions, word in parts)
