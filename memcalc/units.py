"""Bytes, their spelling, and the widths of dtypes. GiB is 2**30 bytes, GB is 10**9."""

from __future__ import annotations

import re
from typing import Any

from memcalc.errors import InputError, UnknownNameError

KiB, MiB, GiB, TiB = 2**10, 2**20, 2**30, 2**40
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

DTYPE_BYTES: dict[str, int] = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of one element, by torch's name of the dtype."""

DTYPE_ALIASES = {"fp32": "float32", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp64": "float64"}


def dtype_name(name: str, *, where: str | None = None) -> str:
    """torch's name for a dtype however it is spelt (``bf16``, ``torch.bfloat16``).

    Raises:
        UnknownNameError: no such dtype.

    >>> dtype_name("torch.bf16")
    'bfloat16'
    """
    short = str(name).lower().removeprefix("torch.")
    short = DTYPE_ALIASES.get(short, short)
    if short not in DTYPE_BYTES:
        raise UnknownNameError("dtype", name, (*DTYPE_BYTES, *DTYPE_ALIASES), where=where)
    return short


def ceil_div(a: Any, b: Any) -> Any:
    """The least integer not below ``a / b``; ints or integer arrays.

    >>> ceil_div(7, 2)
    4
    """
    return -(-a // b)


def round_up(a: Any, multiple: Any) -> Any:
    """``a`` rounded up to a multiple; ints or integer arrays.

    >>> round_up(32000, 128 * 3)
    32256
    """
    return ceil_div(a, multiple) * multiple


MAX_CARD_BYTES = 2**50
"""No card has more memory."""

_UNITS = {"": 1, "b": 1, "kb": KB, "mb": MB, "gb": GB, "tb": TB, "kib": KiB, "mib": MiB, "gib": GiB, "tib": TiB}


def parse_bytes(text: str | int, *, where: str | None = None) -> int:
    """Bytes of a card's memory, or of a part of it, as people write it.

    Raises:
        InputError: not a number with one of the known units, or not a size that a card may have.

    >>> parse_bytes("75GiB"), parse_bytes("80 GB"), parse_bytes(512)
    (80530636800, 80000000000, 512)
    """
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise InputError(f"{text!r} is not a size; write a number and a unit such as 75GiB or 80GB", where=where)
    size = round(float(match.group(1)) * unit)
    if not 0 < size <= MAX_CARD_BYTES or (size < MiB and not match.group(2)):
        raise InputError(f"no card has {text}{'' if match.group(2) else ' bytes'} of memory; write a size such as 75GiB or 80GB", where=where)
    return size


def gib(num_bytes: float, digits: int = 2) -> str:
    """``num_bytes`` in GiB.

    >>> gib(3 * 2**29)
    '1.50 GiB'
    """
    return f"{num_bytes / GiB:.{digits}f} GiB"
