"""Which modules PEFT means: by the ends of their names, by one regular expression over whole names, or all that are linear.

A module's name is that in the model's own code, with the number of its layer and what stands above the layers. memcalc keeps equal layers
in one block and leaves out what stands above, so a name is held against every form that it may have.

The Trainer's optimizers of low rank look for names in another way (`searched`).

Source: peft/tuners/tuners_utils.py (check_target_module_exists, inject_adapter); transformers/trainer_utils.py (check_target_module_exists).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from memcalc.errors import InputError, UnknownNameError

Wanted = Callable[[str, str], bool]
"""Whether a linear layer is wanted, by its name and its dotted path with the number of its layer."""

ABOVE = ("", "model.", "transformer.", "model.decoder.", "gpt_neox.", "backbone.", "model.model.")
"""What stands above the layers of a model of text, by family."""
ABOVE_WITH_IMAGES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
"""The same where towers stand beside them, and above those."""

_NUMBER = re.compile(r"(^|[.(|])\d|\\d|\[")


def named(wanted: str | tuple[str, ...], names: Iterable[str], *, where: str, with_images: bool = False) -> Wanted:
    """Whether a linear layer is among those wanted: names, one regular expression of whole names, or ``all-linear``.

    Args:
        wanted: as in the run file.
        names: of the model's linear layers.
        where: the key, for messages.
        with_images: the model has towers.

    Raises:
        UnknownNameError: a name that is not among `names`.
        InputError: no regular expression.
    """
    if wanted == "all-linear":
        return lambda _name, _path: True
    above, known = ABOVE_WITH_IMAGES if with_images else ABOVE, set(names)
    if isinstance(wanted, str) and wanted not in known:  # a name alone is a list of one: as a pattern it is no whole name
        try:
            pattern = re.compile(wanted)
        except re.error as error:
            raise InputError(f"{wanted!r} is no regular expression: {error}", where=where) from error
        return lambda _name, path: any(pattern.fullmatch(f"{stem}{path}") for stem in above)
    wanted = (wanted,) if isinstance(wanted, str) else wanted
    for name in wanted:
        if name.rsplit(".", 1)[-1] not in known:
            raise UnknownNameError("target module", name, known, where=where)
    return lambda _name, path: any(f"{stem}{path}".endswith(f".{name}") or f"{stem}{path}" == name for name in wanted for stem in above)


def searched(wanted: str | tuple[str, ...], paths: Iterable[str], *, where: str) -> Callable[[str], bool]:
    """Whether transformers' Trainer finds a module, by its dotted path: names in a list may be any part of it (``attn``), or regular expressions.

    Args:
        wanted: as in the run file; a single string is one regular expression of whole names, or ``all-linear``.
        paths: of the model's linear layers.
        where: the key, for messages.

    Raises:
        UnknownNameError: one of a list is in no path.
        InputError: no regular expression, or one that no path agrees with.
    """
    if isinstance(wanted, str) and wanted.replace("_", "-") == "all-linear":
        return lambda _path: True
    known, whole = list(paths), isinstance(wanted, str)
    found = []
    for name in (wanted,) if isinstance(wanted, str) else wanted:
        found.append(_found(name, whole=whole, where=where))
        if not any(found[-1](path) for path in known):
            raise UnknownNameError("target module", name, {path.rsplit(".", 1)[-1] for path in known}, where=where)
    return lambda path: any(one(path) for one in found)


def _found(name: str, *, whole: bool, where: str) -> Callable[[str], bool]:
    try:
        pattern = re.compile(name)
    except re.error as error:
        if whole:
            raise InputError(f"{name!r} is no regular expression: {error}", where=where) from error
        return lambda path: any(name in f"{stem}{path}" for stem in ABOVE)
    return lambda path: any((not whole and name in f"{stem}{path}") or pattern.fullmatch(f"{stem}{path}") is not None for stem in ABOVE)


def tells_layers_apart(wanted: str | tuple[str, ...]) -> bool:
    """Whether one of several equal layers may be wanted and not another: by a regular expression, or by a number in a name.

    >>> tells_layers_apart(("q_proj", "self_attn.v_proj")), tells_layers_apart(".*v_proj"), tells_layers_apart(("layers.3.mlp.up_proj",))
    (False, True, True)
    """
    if isinstance(wanted, str):
        return wanted not in ("all-linear", "default")
    return any(_NUMBER.search(name) for name in wanted)


__all__ = ["Wanted", "named", "searched", "tells_layers_apart"]
