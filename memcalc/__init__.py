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
    from collections.abc import Iterable as _Iterable
    from collections.abc import Mapping as _Mapping
    from collections.abc import Sequence as _Sequence

    from memcalc.engine.result import Estimate, Instant, ModelFacts, RankEstimate, Term, Verdict
    from memcalc.errors import InputError, MemcalcError, MissingExtraError, ModelError, ShardingError, UnknownNameError
    from memcalc.specs.model import ModelSpec
    from memcalc.specs.run import HardwareSpec, LoraSpec, OffloadSpec, Run, ShardingSpec
    from memcalc.whatif.advise import Advice
    from memcalc.whatif.compare import Comparison
    from memcalc.whatif.diagnose import Diagnosis
    from memcalc.whatif.limits import Limits
    from memcalc.whatif.plan import Plans
    from memcalc.whatif.stress import Stressed
    from memcalc.whatif.swept import Swept

__version__ = "0.1.0"

_PLACES = {
    "Advice": "whatif.advise",
    "Comparison": "whatif.compare",
    "Diagnosis": "whatif.diagnose",
    "Limits": "whatif.limits",
    "Plans": "whatif.plan",
    "Stressed": "whatif.stress",
    "Swept": "whatif.swept",
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


def sweep(run: Run | _Mapping[str, _typing.Any] | str | _os.PathLike[str] | None = None, /, **keys: _typing.Any) -> Swept:
    """A run over several values of its keys, every combination.

    Args:
        run: as for `estimate`.
        keys: as for `estimate`; one with a list, tuple or range of values is swept over. A swept key holds one value, not a list of names.

    Raises:
        InputError: a key or value that cannot be used, or no combination that can be.
    """
    from memcalc.specs.read import Layer, read_run
    from memcalc.whatif.swept import swept as answer

    axes = {key.replace("_", "-"): tuple(values) for key, values in keys.items() if isinstance(values, (list, tuple, range))}
    fixed = {key: value for key, value in keys.items() if key.replace("_", "-") not in axes}
    models = {} if "model" not in axes else {"model": str(axes["model"][0])}
    base = read_run(run, **models, **fixed).model_dump(exclude_unset=True)
    return answer([Layer(base)], axes)


def limits(run: Run | _Mapping[str, _typing.Any] | str | _os.PathLike[str] | None = None, /, *, margin: float = 0.0, **keys: _typing.Any) -> Limits:
    """How far a run can go on its card: the longest sequence, the largest batch, tokens per batch, ranks of adapters.

    Args:
        run, keys: as for `estimate`; a card is named.
        margin: the share of the card that stays free.

    Raises:
        InputError: no card, or a run that cannot be.
    """
    from memcalc.specs.read import read_run
    from memcalc.whatif.limits import limits as answer

    return answer(read_run(run, **keys), margin=margin)


def advise(run: Run | _Mapping[str, _typing.Any] | str | _os.PathLike[str] | None = None, /, *, margin: float = 0.0, **keys: _typing.Any) -> Advice:
    """What to change in a run that does not fit: each rung of the ladder by itself, and the shortest sequence that fits.

    Args:
        run, keys: as for `estimate`; a card is named.
        margin: the share of the card that stays free.

    Raises:
        InputError: no card, or a run that cannot be.
    """
    from memcalc.specs.read import read_run
    from memcalc.whatif.advise import advise as answer

    return answer(read_run(run, **keys), margin=margin)


def plan(
    run: Run | _Mapping[str, _typing.Any] | str | _os.PathLike[str] | None = None, /, *, global_batch: int, margin: float = 0.0, **keys: _typing.Any
) -> Plans:
    """The ways to spread a training run over its cards that fit, by relative cost.

    Args:
        run, keys: as for `estimate`; card and number of cards are named, and what else is given is kept.
        global_batch: sequences of one optimizer step, over all cards.
        margin: the share of the card that stays free.

    Raises:
        InputError: no cards, or no way at all.
    """
    from memcalc.specs.read import read_run
    from memcalc.whatif.plan import plan as answer

    return answer(read_run(run, **keys), global_batch=global_batch, margin=margin)


def stress(
    run: Run | _Mapping[str, _typing.Any] | str | _os.PathLike[str] | None = None, /, *, only: _Sequence[str] = (), margin: float = 0.0, **keys: _typing.Any
) -> Stressed:
    """What a training run that fits may still die of: incidents, each with the instant, the bytes that it brings, and whether the run survives.

    Args:
        run, keys: as for `estimate`; a card is named.
        only: names of incidents, or of groups of them; all by default.
        margin: the share of the card that stays free.

    Raises:
        InputError: no card, a run that does not train, an unknown incident.
    """
    from memcalc.specs.read import read_run
    from memcalc.whatif.stress import stress as answer

    return answer(read_run(run, **keys), only=only, margin=margin)


def diagnose(
    log: _Iterable[str] | str | _os.PathLike[str],
    run: Run | _Mapping[str, _typing.Any] | str | _os.PathLike[str] | None = None,
    /,
    **keys: _typing.Any,
) -> Diagnosis:
    """What the out-of-memory messages of a log mean, and which of the run's tensors could not be had.

    Args:
        log: the path of a log, or its lines.
        run, keys: the run that wrote it, as for `estimate`; without it the messages alone are read.

    Raises:
        InputError: a run that cannot be.
        OSError: the log cannot be read.
    """
    import os

    from memcalc.specs.read import read_run
    from memcalc.whatif.diagnose import diagnose as answer

    job = None if run is None and not keys else read_run(run, **keys)
    if not isinstance(log, (str, os.PathLike)):
        return answer(log, job)
    with open(log, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 (pathlib takes as long to import as memcalc)
        return answer(lines, job)


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
    "Advice",
    "Comparison",
    "Diagnosis",
    "Estimate",
    "HardwareSpec",
    "InputError",
    "Instant",
    "Limits",
    "LoraSpec",
    "MemcalcError",
    "MissingExtraError",
    "ModelError",
    "ModelFacts",
    "ModelSpec",
    "OffloadSpec",
    "Plans",
    "RankEstimate",
    "Run",
    "ShardingError",
    "ShardingSpec",
    "Stressed",
    "Swept",
    "Term",
    "UnknownNameError",
    "Verdict",
    "advise",
    "compare",
    "diagnose",
    "estimate",
    "limits",
    "plan",
    "stress",
    "sweep",
]
