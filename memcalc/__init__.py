"""memcalc: will this model fit — on every rank, at every instant of the step?

>>> import memcalc
>>> answer = memcalc.estimate("llama-7b", tp=2, gpus=4)
>>> answer.model.total_params
6738415616

What is offered here is `__all__`; each part is imported when it is first asked for.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    import os as _os
    from collections.abc import Mapping as _Mapping
    from collections.abc import Sequence as _Sequence

    from memcalc.engine.result import Estimate, Instant, ModelFacts, RankEstimate, Term, Verdict
    from memcalc.errors import InputError, MemcalcError, MissingExtraError, ModelError, ShardingError, UnknownNameError
    from memcalc.specs.model import ModelSpec
    from memcalc.specs.run import HardwareSpec, LoraSpec, OffloadSpec, Run, ShardingSpec
    from memcalc.whatif.compare import Comparison

__version__ = "0.1.0"

_PLACES = {
    "Comparison": "whatif.compare",
    **dict.fromkeys(("Estimate", "Instant", "ModelFacts", "RankEstimate", "Term", "Verdict"), "engine.result"),
    **dict.fromkeys(("InputError", "MemcalcError", "MissingExtraError", "ModelError", "ShardingError", "UnknownNameError"), "errors"),
    **dict.fromkeys(("HardwareSpec", "LoraSpec", "OffloadSpec", "Run", "ShardingSpec"), "specs.run"),
    "ModelSpec": "specs.model",
}


def estimate(run: Run | _Mapping[str, _typing.Any] | str | _os.PathLike[str] | None = None, /, **keys: _typing.Any) -> Estimate:
    """What a job needs, on every kind of rank, at every instant of its step.

    Args:
        run: a run, a dict laid out as a run file, the path of a run file (``.yaml``, ``.yml``), or what names a model: a name of the
            catalogue, a path to a config.json or its folder, a Hub id.
        keys: keys of the run file, or the flags' names with underscores (``tp=2``, ``gpu="h100-80g"``, ``lora_r=16``); they win.

    Raises:
        InputError: something that cannot be; ``str()`` of it is one line that says what is accepted.
    """
    from memcalc.engine.estimate import estimate as answer
    from memcalc.specs.read import read_run

    return answer(read_run(run, **keys))


def compare(
    runs: _Sequence[Run | _Mapping[str, _typing.Any] | str] | _Mapping[str, Run | _Mapping[str, _typing.Any] | str], /, **keys: _typing.Any
) -> Comparison:
    """Several runs side by side.

    Args:
        runs: each as for `estimate`; a mapping names them.
        keys: keys that hold for all of them.

    Raises:
        InputError: fewer than two, or one that cannot be.
    """
    from memcalc.whatif.compare import compare as answer

    return answer(runs, **keys)


def __getattr__(name: str) -> _typing.Any:
    place = _PLACES.get(name)
    if place is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = globals()[name] = getattr(_importlib.import_module(f"{__name__}.{place}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Comparison",
    "Estimate",
    "HardwareSpec",
    "InputError",
    "Instant",
    "LoraSpec",
    "MemcalcError",
    "MissingExtraError",
    "ModelError",
    "ModelFacts",
    "ModelSpec",
    "OffloadSpec",
    "RankEstimate",
    "Run",
    "ShardingError",
    "ShardingSpec",
    "Term",
    "UnknownNameError",
    "Verdict",
    "compare",
    "estimate",
]
