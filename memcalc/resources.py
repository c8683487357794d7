"""The data that memcalc ships: the catalogue of models, the cards, example runs.

In a clone and in an editable install ``configs/`` stands beside the package; in a wheel it is inside it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from memcalc.errors import MemcalcError


def config_path(*parts: str) -> Path:
    """The path of a file or folder in ``configs/``, whether or not it exists.

    Args:
        parts: its place there, one name each.

    Raises:
        MemcalcError: this installation has no ``configs/``.

    >>> config_path("models", "llama-7b.json").name
    'llama-7b.json'
    """
    return _configs().joinpath(*parts)


@cache
def _configs() -> Path:
    package = Path(__file__).resolve().parent
    for folder in (package / "configs", package.parent / "configs"):
        if folder.is_dir():
            return folder
    message = f"{package}: the installation is incomplete, its configs folder is missing; reinstall gpu-memcalc"
    raise MemcalcError(message)
