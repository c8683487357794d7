"""Named precisions: what a word like ``amp`` means for the dtypes of a run, engine by engine."""

from __future__ import annotations

from typing import Any, NamedTuple

from memcalc.engine.deepspeed_run import uses_deepspeed
from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.run import Run

HOLDS_MASTERS = ("deepspeed", "megatron")
"""Engines that hold weights of 16 bits beside fp32 ones which the optimizer steps."""
OWN_ENGINES = {"megatron": "megatron", "torchtitan": "fsdp2"}
"""Who shards by default under code with an engine of its own."""


class Precision(NamedTuple):
    """What a name sets.

    Attributes:
        dtype, autocast: of the run.
        adapters: the dtype of adapters.
        masters: whether it is for engines that hold fp32 masters, for the others, or (None) for all.
        base: the dtype of a frozen base under adapters, where that is another.
        fp8: whose products in fp8 there are.
    """

    dtype: str
    autocast: str | None = None
    adapters: str = "float32"
    masters: bool | None = None
    base: str | None = None
    fp8: str | None = None


PRECISIONS: dict[str, Precision] = {
    "fp32": Precision("float32"),
    "pure_bf16": Precision("bfloat16", adapters="bfloat16", masters=False),
    "amp": Precision("float32", "bfloat16", masters=False),
    "amp_fp16": Precision("float32", "float16", masters=False),
    "bf16": Precision("bfloat16", masters=True),
    "fp16": Precision("float16", masters=True),
    "fp8": Precision("bfloat16", masters=True, fp8="te"),
    "fp8_amp": Precision("float32", "bfloat16", masters=False, fp8="te"),
    "fp8_torchao": Precision("float32", "bfloat16", masters=False, fp8="torchao"),
    "trl": Precision("float32", "bfloat16", masters=False),
    "llamafactory": Precision("float32", "bfloat16", masters=False, base="bfloat16"),
}
"""fp32: weights and compute (also under TF32, which stores nothing else). pure_bf16: no fp32 anywhere but in kernels. amp: fp32 weights under
torch.autocast, or FSDP's policy over fp32 shards, as accelerate casts what is trained (accelerator.py, prepare_model). bf16, fp16: 16-bit weights with fp32
masters. fp8, fp8_amp: either with Transformer Engine's products in fp8 (Megatron's --fp8-format, accelerate's fp8). fp8_torchao: amp with torchao's
(torchtitan's float8). trl: its models are loaded in fp32 (trl/trainer/model_config.py, dtype). llamafactory: the base as it is, what is trained in fp32
(llamafactory/model/adapter.py, cast_trainable_params_to_fp32)."""


def with_precision(run: Run) -> Run:
    """The run with the dtypes that its ``precision`` names.

    Raises:
        InputError: a key that says otherwise, or an engine for which the name means nothing.
        UnknownNameError: no such name.
    """
    if run.precision is None:
        return run
    if run.precision not in PRECISIONS:
        raise UnknownNameError("precision", run.precision, PRECISIONS, where="precision")
    found = PRECISIONS[run.precision]
    _check(run, found)
    dtype = found.base if found.base is not None and (run.lora is not None or run.prompt is not None) else found.dtype
    wanted: dict[str, Any] = {"dtype": dtype, "autocast": found.autocast} | ({} if found.fp8 is None else {"fp8": found.fp8})
    for key, value in wanted.items():
        if key in run.model_fields_set and getattr(run, key) != value:
            raise InputError(f"precision {run.precision} makes it {value}, and it is {getattr(run, key)}; leave one of them out", where=key)
    if run.lora is not None:
        if "dtype" in run.lora.model_fields_set and run.lora.dtype != found.adapters:
            raise InputError(f"precision {run.precision} has adapters in {found.adapters}, not {run.lora.dtype}; leave one of them out", where="lora.dtype")
        wanted["lora"] = run.lora.model_copy(update={"dtype": found.adapters})
    if run.prompt is not None:
        if "dtype" in run.prompt.model_fields_set and run.prompt.dtype != found.adapters:
            raise InputError(f"precision {run.precision} has them in {found.adapters}, not {run.prompt.dtype}; leave one of them out", where="prompt.dtype")
        wanted["prompt"] = run.prompt.model_copy(update={"dtype": found.adapters})
    return run.model_copy(update=wanted)


def _check(run: Run, found: Precision) -> None:
    sharding = run.sharding
    engine = "deepspeed" if uses_deepspeed(run) else sharding.engine or OWN_ENGINES.get(run.code, "ddp")
    holds = engine in HOLDS_MASTERS
    if found.masters is not None and found.masters != holds:
        able = [name for name, p in PRECISIONS.items() if p.masters in (None, holds)]
        what = "holds fp32 masters of 16-bit weights" if holds else "holds no masters"
        raise InputError(f"engine {engine} {what}; it can be {', '.join(able)}", where="precision")
