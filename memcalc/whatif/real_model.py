"""The model of a run as transformers builds it, with adapters and sharding as the run says. Needs torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memcalc.errors import InputError, extra
from memcalc.specs.run import Run

AUTO_CLASSES = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM", "AutoModelForImageTextToText", "AutoModel")
NOT_FOR_THE_CLASS = ("model_type", "architectures", "torch_dtype", "dtype", "transformers_version", "auto_map", "quantization_config", "memcalc")
"""Keys of a config.json that say nothing of the model's shape."""


def check(run: Run) -> None:
    """Nothing, where tracing covers a run.

    Raises:
        InputError: it does not; the message says what to leave out.
    """
    s = run.sharding
    refusals = (
        ("code", run.code != "transformers", f"{run.code} is not traced, transformers is"),
        ("task", run.task not in ("train", "inference"), f"{run.task} is not traced; trace train or inference"),
        ("attention", run.attention == "flash_attention_2", "flash_attention_2 needs a GPU; trace sdpa or eager"),
        ("loss", run.loss != "cross_entropy", f"{run.loss} is not traced, cross_entropy is"),
        ("recompute", run.recompute == "selective", "selective is not traced; trace none or full"),
        ("quantization", run.quantization is not None, "quantised weights are not traced"),
        ("offload", bool(run.offload.as_dict()), "offload is not traced"),
        ("sharding", s.pp * s.cp * s.ep > 1 or s.sp, "pp, cp, ep and sp are not traced; tp is, and engine fsdp2"),
        ("sharding.engine", s.engine not in (None, "ddp", "fsdp2") or bool(s.deepspeed), f"{s.engine or 'deepspeed'} is not traced; tp is, and engine fsdp2"),
        ("sharding.zero", bool(s.zero) and s.engine != "fsdp2", "ZeRO is not traced; leave it out"),
        ("sharding.dp", (s.dp or 1) > 1 and s.engine != "fsdp2", "replicas are not traced; leave dp out, or trace engine fsdp2"),
    )
    for where, refused, message in refusals:
        if refused:
            raise InputError(message, where=where)


@contextmanager
def patched() -> Iterator[None]:
    """A context in which models can be built and run without data."""
    with _quiet(), _no_initial_values(), _fake_friendly():
        yield


def build(run: Run, mesh: Any) -> Any:
    """The model, ready to step, in the fake mode that is on.

    Args:
        run: what was asked; `check` has passed it.
        mesh: of `device_mesh`.

    Raises:
        InputError: transformers does not know its ``model_type``, or cannot build it.
    """
    model = _model(run)
    model.train(run.task != "inference")
    if run.recompute == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if run.lora is not None:
        model = _with_adapters(run, model)
    return model if mesh is None else _sharded(run, model, mesh)


@contextmanager
def device_mesh(run: Run) -> Iterator[Any]:
    """The mesh of a run's ranks on a process group that moves no data; None where one card does. Not to be made among fake tensors."""
    dp, tp = _degrees(run)
    if dp * tp == 1:
        yield None
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=dp * tp)
    try:
        yield init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    finally:
        dist.destroy_process_group()


def _model(run: Run) -> Any:
    import transformers

    from memcalc.models.read import read_config

    config = read_config(run.model)
    if config.model_type not in transformers.CONFIG_MAPPING:
        raise InputError(f"model_type {config.model_type!r} is not one that transformers {transformers.__version__} has code for", where=config.where)
    data = {key: value for key, value in config.data.items() if key not in NOT_FOR_THE_CLASS}
    try:
        real = transformers.CONFIG_MAPPING[config.model_type](**data)
    except Exception as error:
        raise InputError(f"transformers refuses the file: {error}", where=config.where) from error
    real._attn_implementation = run.attention  # noqa: SLF001 (transformers' own tests set it so)
    real.use_cache = run.task == "inference"
    for name in AUTO_CLASSES:
        auto = getattr(transformers, name, None)
        if auto is not None and type(real) in auto._model_mapping:  # noqa: SLF001
            return auto.from_config(real, attn_implementation=run.attention)
    raise InputError(f"transformers has no model to train for model_type {config.model_type!r}", where=config.where)


def _with_adapters(run: Run, model: Any) -> Any:
    with extra("trace", "tracing adapters"):
        import peft
    import torch

    lora = run.lora
    assert lora is not None
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=lora.r, target_modules=targets, lora_dropout=lora.dropout)
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
    for module in model.modules():
        for name, parameter in module._parameters.items():  # noqa: SLF001
            if parameter is not None and parameter.requires_grad:
                module._parameters[name] = torch.nn.Parameter(parameter.detach().to(getattr(torch, lora.dtype)))  # noqa: SLF001
    if run.recompute == "full":
        model.enable_input_require_grads()
    return model


def _sharded(run: Run, model: Any, mesh: Any) -> Any:
    dp, tp = _degrees(run)
    layers = _layers(model)
    if tp > 1:
        _tensor_parallel(model, layers, mesh["tp"])
    if dp > 1:
        _fully_sharded(run, model, layers, mesh["dp"])
    return model


def _degrees(run: Run) -> tuple[int, int]:
    tp = run.sharding.tp
    dp = run.sharding.dp or max((run.hardware.gpus or 1) // tp, 1)
    return (dp if run.sharding.engine == "fsdp2" else 1), tp


def _layers(model: Any) -> Any:
    layers = getattr(getattr(model, "model", None), "layers", None)
    if layers is None:
        raise InputError(f"{type(model).__name__} keeps its layers elsewhere than a decoder does, so its sharding is not traced", where="sharding")
    return layers


def _tensor_parallel(model: Any, layers: Any, mesh: Any) -> None:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    columns, rows = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), ("o_proj", "down_proj")
    for layer in layers:
        names = {name.rpartition(".")[2]: name for name, _ in layer.named_modules()}
        plan = {names[name]: ColwiseParallel() for name in columns if name in names}
        plan |= {names[name]: RowwiseParallel() for name in rows if name in names}
        parallelize_module(layer, mesh, plan)
    parallelize_module(model, mesh, {"lm_head": ColwiseParallel(output_layouts=Replicate())})


def _fully_sharded(run: Run, model: Any, layers: Any, mesh: Any) -> None:
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": run.sharding.reshard_after_forward}
    if run.autocast or run.sharding.reduce_dtype:
        compute, reduce = (getattr(torch, name) if name else None for name in (run.autocast, run.sharding.reduce_dtype))
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    for layer in layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)


# ---------------------------------------------------------------------- what fake tensors cannot do
@contextmanager
def _no_initial_values() -> Iterator[None]:
    """Initialisers return what they are given: there is no data to fill."""
    from torch.nn import init

    names = [name for name in dir(init) if name.endswith("_") and not name.startswith("_")]
    with _replaced(*((init, name, _given) for name in names)):
        yield


def _given(first: Any, *_: Any, **__: Any) -> Any:
    return first


def _none(*_: Any, **__: Any) -> None:
    return None


@contextmanager
def _fake_friendly() -> Iterator[None]:
    """Packed sequences are not looked for, since there are no values to look at; ``Module.to``, which PEFT calls, leaves modules as they are."""
    import transformers
    from torch import nn

    with _replaced((transformers.masking_utils, "find_packed_sequence_indices", _none), (nn.Module, "to", _given)):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """What the libraries have to say of their own future is not the user's concern here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


@contextmanager
def _replaced(*replacements: tuple[Any, str, Any]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements if hasattr(owner, name)]
    try:
        for owner, name, value in replacements:
            if hasattr(owner, name):
                setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
