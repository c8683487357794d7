"""Named shapes of length distributions: ``lognormal:median=600,sigma=1.1,max=8192``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memcalc.errors import InputError, UnknownNameError
from memcalc.whatif.lengths.distribution import LONGEST, Distribution, of_shares

if TYPE_CHECKING:
    from memcalc.whatif.lengths.distribution import Floats, Ints


def _lognormal(edge: Floats, p: dict[str, float]) -> Any:
    import numpy as np

    z = (np.log(edge) - math.log(p["median"])) / p["sigma"]
    return np.asarray([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])


def _exponential(edge: Floats, p: dict[str, float]) -> Any:
    import numpy as np

    return -np.expm1(-edge / p["mean"])


def _uniform(edge: Floats, p: dict[str, float]) -> Any:
    import numpy as np

    return np.clip((edge - p["min"] + 0.5) / (p["max"] - p["min"] + 1), 0.0, 1.0)


def _pareto(edge: Floats, p: dict[str, float]) -> Any:
    import numpy as np

    return np.where(edge < p["min"], 0.0, 1 - (p["min"] / np.maximum(edge, p["min"])) ** p["alpha"])


SHAPES: dict[str, tuple[dict[str, float | None], Callable[[Any, dict[str, float]], Any]]] = {
    "lognormal": ({"median": None, "sigma": 1.0, "max": None}, _lognormal),
    "exponential": ({"mean": None, "max": None}, _exponential),
    "uniform": ({"min": 1.0, "max": None}, _uniform),
    "pareto": ({"min": None, "alpha": 1.5, "max": None}, _pareto),
}
"""Parameters with their defaults (None: it must be given), and the share up to an edge; what is longer than ``max`` is cut to it."""


def shape(text: str, *, num_samples: int) -> Distribution | None:
    """The distribution that a text names; None where it names none.

    Raises:
        InputError: a parameter is unknown, missing or no positive number.
    """
    import numpy as np

    name, _, rest = text.partition(":")
    if name not in SHAPES:
        return None
    known, up_to = SHAPES[name]
    given: dict[str, float] = {key: value for key, value in known.items() if value is not None}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key.strip() not in known:
            raise UnknownNameError("parameter", key.strip(), known, where=f"--lengths {name}")
        given[key.strip()] = _number(value, where=f"--lengths {name}:{key.strip()}")
    missing = [key for key in known if key not in given]
    if missing:
        raise InputError(f"{missing[0]} is missing: {name}:{','.join(f'{key}=…' for key in known)}", where="--lengths")
    longest = round(given["max"])
    if not given.get("min", 1) <= longest <= LONGEST:
        raise InputError(f"max is from {given.get('min', 1):g} to {LONGEST:,}", where=f"--lengths {name}")
    lengths: Ints = np.arange(1, longest + 1, dtype=np.int64)
    below = np.asarray(up_to(lengths + 0.5, given), dtype=np.float64)
    below[-1] = 1.0
    return of_shares(lengths, np.diff(below, prepend=0.0), num_samples=num_samples, name=text)


def _number(text: str, *, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (0 < value < math.inf):
        raise InputError(f"{text!r} is not a number above 0", where=where)
    return value
