"""DeepSpeed's JSON. What it says about memory is read by `memcalc.specs.deepspeed_file`; here is what else of a run it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import DEEPSPEED, Entry, Facts, number
from memcalc.importers.format import Format
from memcalc.importers.rules import whole_number
from memcalc.importers.source import Source
from memcalc.specs.run import Run

MARKS = {"train_batch_size": int, "fp16": Mapping, "bf16": Mapping, "optimizer": Mapping, "steps_per_print": int}
BLOCKS = ("zero_optimization", "bf16", "bfloat16", "fp16")


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``zero_optimization``, its name for a micro-batch, or two of the keys that every one has."""
    marks = sum(isinstance(keys.get(key), kind) for key, kind in MARKS.items())
    return any(key in keys for key in ("zero_optimization", "train_micro_batch_size_per_gpu")) or marks > 1


def prepare(source: Source) -> Source:
    """Numbers as numbers, and checked as a whole; a complaint names the line.

    Raises:
        InputError: DeepSpeed would not take it, either.
    """
    from memcalc.specs.deepspeed_file import read_deepspeed

    data = _numbers(source.data)
    try:
        read_deepspeed(data, where=source.name)
    except InputError as error:
        raise InputError(error.message, where=_line(source, error)) from None
    return source._replace(data={"~all": data, **{key: value for key, value in data.items() if key in ("train_batch_size", *KEYS, *BLOCKS)}})


def _numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    made = number(value) if isinstance(value, str) else None
    return value if made is None else int(made) if made == int(made) else made


def _line(source: Source, error: InputError) -> str:
    key = error.message.partition(" is ")[0].rpartition(".")[2]
    return next((f"{source.name}:{line}" for place, line in source.lines.items() if place[-1] in (key, f"stage3_{key}")), source.name)


def _everything(facts: Facts, entry: Entry) -> None:
    facts.put("~deepspeed", entry.value, entry.where)


def _enabled(name: str) -> Any:
    def write(facts: Facts, entry: Entry) -> None:
        enabled = entry.value.get("enabled") if isinstance(entry.value, Mapping) else None
        if enabled is True:
            facts.put("~mixed_precision", name, entry.where)
        elif enabled is False and "~mixed_precision" not in facts.found:
            facts.put("~mixed_precision", "no", entry.where)

    return write


KEYS: dict[str, Any] = {
    "~all": _everything,
    "train_batch_size": whole_number("~global_batch"),
    "train_micro_batch_size_per_gpu": whole_number("micro_batch"),
    "gradient_accumulation_steps": whole_number("grad_accum"),
    "bf16": _enabled("bf16"),
    "bfloat16": _enabled("bf16"),
    "fp16": _enabled("fp16"),
}

FORMAT = Format(
    name="deepspeed",
    title="DeepSpeed JSON",
    version="DeepSpeed 0.19",
    rank=DEEPSPEED,
    recognise=recognise,
    keys=KEYS,
    ignored=("zero_optimization*",),
    prepare=prepare,
    order=10,
    notes='Comments and trailing commas may stand in it; a key may not stand twice. `"auto"` is filled in as transformers\' Trainer does, or, when a program '
    "starts DeepSpeed itself, dropped as DeepSpeed does; the estimate says which. Keys of `zero_optimization`, `bf16`, `fp16`, `data_types`, `optimizer`, "
    "`tensor_parallel` and `torch_autocast` count with DeepSpeed's own defaults; the estimate lists those that do not.",
)


def export(run: Run) -> str:
    """The configuration that a run stands for.

    Raises:
        InputError: another engine shards it.
    """
    import json

    engine, zero = run.sharding.engine, run.sharding.zero
    if engine not in (None, "deepspeed") or (run.sharding.deepspeed is None and not zero and engine is None):
        raise InputError("the run is not DeepSpeed's: give a stage with --zero, or export another format", where="sharding.engine")
    data: dict[str, Any] = {}
    if isinstance(run.sharding.deepspeed, Mapping):
        data = dict(run.sharding.deepspeed)
    elif isinstance(run.sharding.deepspeed, str):
        from memcalc.importers.source import read_source

        data = dict(_numbers(read_source(run.sharding.deepspeed).data))
    block: dict[str, Any] = {"stage": zero or 0, **dict(data.get("zero_optimization") or {})}
    for name, device in (("offload_optimizer", run.offload.optimizer), ("offload_param", run.offload.params)):
        if device is not None:
            block.setdefault(name, {"device": device})
    data["zero_optimization"] = block
    data.setdefault("bf16", {"enabled": run.dtype == "bfloat16"})
    data.setdefault("fp16", {"enabled": run.dtype == "float16"})
    if run.autocast is not None:
        data.setdefault("torch_autocast", {"enabled": True, "dtype": run.autocast})
    data["train_micro_batch_size_per_gpu"] = run.micro_batch
    data["gradient_accumulation_steps"] = run.grad_accum
    data.pop("train_batch_size", None)
    return json.dumps(data, indent=2) + "\n"
