"""The cards: what each offers a process. The facts stand in ``configs/gpus.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from memcalc.dataclass import dataclass
from memcalc.errors import InputError, UnknownNameError
from memcalc.resources import config_path
from memcalc.units import GiB, gib, parse_bytes

_NOISE = re.compile(r"nvidia|amd|intel|huawei|habana|geforce|tesla|instinct|generation|sxm\d?|pcie|oam|hbm\d?e?|gpu")
"""Words of a device's name that do not tell its memory."""


@dataclass(frozen=True)
class Gpu:
    """One card.

    Attributes:
        name: of ``memcalc gpus``, or the size that was given instead of one.
        capacity_bytes: the least that torch was seen to have of such a card.
        most_bytes: the most.
        nominal_gb: what the vendor calls it (10^9 bytes).
        smi_mib: the total in nvidia-smi and its like.
        aliases: other names.
        note: what to know.
        rough: few readings stand behind the figures.
        hopper: Hopper or Blackwell, for which torch gives cuBLAS a larger workspace.
    """

    name: str
    capacity_bytes: int
    most_bytes: int
    nominal_gb: int | None = None
    smi_mib: int | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    rough: bool = False
    hopper: bool = False


def find_gpu(name: str, *, where: str | None = "hardware.gpu") -> Gpu:
    """The card of a name.

    Args:
        name: a name of ``memcalc gpus`` in any spelling, with or without its size where that leaves one card (``h100``), a device's
            name as torch prints it, or what it offers as a size (``23.5GiB``).
        where: for messages.

    Raises:
        InputError: several cards go by that name.
        UnknownNameError: none does.

    >>> find_gpu("NVIDIA A100-SXM4-80GB").name
    'a100-80g'
    """
    if name in gpus():
        return gpus()[name]
    matches = _by_spelling().get(_spelling(name), ())
    if len(matches) == 1:
        return gpus()[matches[0]]
    if matches:
        raise InputError(f"several cards are called {name!r}: {' or '.join(matches)}", where=where)
    if re.fullmatch(r"\s*[\d.]+\s*[gmGM][iI]?[bB]\s*", name):
        size = parse_bytes(name, where=where)
        return Gpu(f"{gib(size)} card", size, size)
    raise UnknownNameError("GPU", name, gpus(), where=where, hint="(or give the memory that torch sees, such as 79.1GiB)")


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every card, by name, in the order of the file."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    facts = yaml.load(config_path("gpus.yaml").read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 (both are safe loaders)
    return MappingProxyType({name: _card(name, **fact) for name, fact in facts.items()})


def _card(
    name: str, *, gb: int, torch_gib: tuple[float, float], smi_mib: int, also: tuple[str, ...] = (), note: str = "", rough: bool = False, hopper: bool = False
) -> Gpu:
    least, most = (round(size * GiB) for size in torch_gib)
    return Gpu(name, least, most, gb, smi_mib, tuple(also), note, rough, hopper)


@cache
def _by_spelling() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for card in gpus().values():
        for known in (card.name, re.sub(r"-\d+g$", "", card.name), *card.aliases):
            found[_spelling(known)] = (*found.get(_spelling(known), ()), card.name)
    return found


def _spelling(name: str) -> str:
    """What is left of a name when marks, vendors and form factors are taken off it."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return "".join(re.sub(r"^(\d+)gi?b$", r"\1g", word) for word in words if not _NOISE.fullmatch(word))
