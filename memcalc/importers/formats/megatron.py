"""Megatron-LM's flags (also as YAML), Megatron-Bridge's and NeMo 1's nested keys; ms-swift and LLaMA-Factory share many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import _megatron_adapters, _megatron_deepspeed, _megatron_shape
from memcalc.importers.formats._megatron import IGNORED
from memcalc.importers.rules import attention, switch, unless, when, whole_number, word
from memcalc.importers.source import Source
from memcalc.specs.run import Run

VERSION = "Megatron-Core 0.16"
BRIDGE = "Megatron-Bridge's recipes (bf16_mixed, distributed optimizer)"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its degrees, at the top or below ``model``."""
    inside = keys.get("model")
    marks = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "recompute_granularity", "micro_batch_size")
    if isinstance(inside, Mapping) and any(key in inside for key in marks[:2]):
        return True
    bridge = any(isinstance(keys.get(key), Mapping) and any(k in keys[key] for k in ("global_batch_size", "micro_batch_size")) for key in ("train",))
    return (
        bridge
        or ("tensor_model_parallel_size" in keys and ("micro_batch_size" in keys or "num_layers" in keys))
        or ("recipe" in keys and isinstance(inside, Mapping))
    )


def prepare(source: Source) -> Source:
    """Nested keys of Bridge and NeMo 1 as the flags' names; the sections that bear on nothing go."""
    data: dict[str, Any] = {}
    lines: dict[tuple[str, ...], int | str] = {}
    for place, value in source.flat():
        parts = ".".join(place).split(".")  # an override has them in one
        section, name = parts[0], "_".join(parts[1:])
        key = name if section in SECTIONS and name else ".".join(parts)
        if "peft" in parts[:2]:
            key = ".".join(parts[parts.index("peft") :])
        if parts[:2] == ["model", "optim"]:
            key = ".".join(parts[1:])
        if value == {} and section in SECTIONS:
            continue
        data[key.replace("-", "_")] = value
        if place in source.lines:
            lines[(key.replace("-", "_"),)] = source.lines[place]
    if any(isinstance(value, Mapping) or "." in name for name, value in source.data.items() if name.partition(".")[0] in ("train", "dataset", "dist")):
        data["~bridge"] = True
    return source._replace(data=data, lines={**source.lines, **lines})


SECTIONS = ("model", "train", "dataset", "ddp", "optimizer", "trainer", "mixed_precision_config", "comm_overlap")


def _recompute(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("full", "selective", "none"):
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: full, selective", where=entry.where)
    facts.put("recompute", entry.word, entry.where)


def _degree(facts: Facts, entry: Entry) -> None:
    facts.put("~megatron_keys", value=True, where=entry.where)
    name = entry.key.rpartition(".")[2].replace("-", "_").removesuffix("_parallel_size").removesuffix("_model")
    short = {"tensor": "tp", "pipeline": "pp", "context": "cp", "expert": "ep", "expert_tensor": "etp"}[name]
    facts.put(f"sharding.{short}", entry.number, entry.where)


def _precision(facts: Facts, entry: Entry) -> None:
    text = entry.word
    found = (
        "bfloat16" if text.startswith("bf16") else "float16" if text.startswith(("16", "fp16")) else "float32" if text in ("32", "fp32", "32-true") else None
    )
    if found is None:
        facts.leave(entry)
    else:
        facts.put("dtype", found, entry.where)


def _dtype(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        if entry.is_on:
            facts.put("dtype", name, entry.where)

    return write


def _layers_per_stage(facts: Facts, entry: Entry) -> None:
    facts.put("~layers_per_virtual_stage", entry.number, entry.where)


def _targets(facts: Facts, entry: Entry) -> None:
    items = entry.value if isinstance(entry.value, list) else str(entry.value).strip("[]").replace(",", " ").split()
    facts.put("recompute_modules", tuple(str(item).strip("'\"") for item in items), entry.where)


def _optimizer(facts: Facts, entry: Entry) -> None:
    name = {"adam": "adamw_torch_fused", "distributed_fused_adam": "adamw_torch_fused", "fused_adam": "adamw_torch_fused", "sgd": "sgd"}.get(
        entry.word, entry.word
    )
    facts.put("optimizer", name, entry.where)
    if entry.word == "distributed_fused_adam":
        facts.put("sharding.use_distributed_optimizer", value=True, where=entry.where)


def _plain(*names: str) -> dict[str, Rule]:
    return {name: f"sharding.{name}" for name in names}


_FP8 = {"hybrid": "te", "e4m3": "te", "true": "te", "false": None, "none": None, "null": None, "": None}

_SHORT = {
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp8": "fp8",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "torch.float32": "fp32",
    "torch.bfloat16": "bf16",
}

KEYS: dict[str, Rule] = {
    **dict.fromkeys(("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size"), _degree),
    "expert_tensor_parallel_size": _degree,
    "virtual_pipeline_model_parallel_size": whole_number("sharding.vpp"),
    "num_virtual_stages_per_pipeline_rank": whole_number("sharding.vpp"),
    "num_layers_per_virtual_pipeline_stage": _layers_per_stage,
    "sequence_parallel": "sharding.sp",
    "micro_batch_size": whole_number("micro_batch"),
    "global_batch_size": whole_number("~global_batch"),
    "seq_length": whole_number("seq_len"),
    "encoder_seq_length": whole_number("seq_len"),
    "recompute_granularity": _recompute,
    "activations_checkpoint_granularity": _recompute,
    "recompute_method": "recompute_method",
    "activations_checkpoint_method": "~nemo_method",
    "recompute_num_layers": whole_number("recompute_num_layers"),
    "activations_checkpoint_num_layers": whole_number("recompute_num_layers"),
    "recompute_modules": _targets,
    "recompute_activations": switch("recompute", "selective", None),
    "bf16": _dtype("bfloat16"),
    "fp16": _dtype("float16"),
    "precision": _precision,
    "optimizer": _optimizer,
    "optim.name": _optimizer,
    "mtp_num_layers": whole_number("mtp_num_layers"),
    "hidden_dropout": "hidden_dropout",
    "attention_dropout": "attention_dropout",
    "attention_backend": attention,
    "attn_impl": attention,
    "use_flash_attn": switch("attention", "flash_attention_2", None),
    **_plain(
        "use_distributed_optimizer",
        "grad_reduce_in_bf16",
        "use_precision_aware_optimizer",
        "make_vocab_size_divisible_by",
        "moe_pad_expert_input_to_capacity",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
        "pipeline_model_parallel_layout",
        "cp_comm_type",
        "moe_grouped_gemm",
        "moe_permute_fusion",
        "apply_rope_fusion",
        "gradient_accumulation_fusion",
    ),
    "no_rope_fusion": switch("sharding.apply_rope_fusion", on=False, off=True),
    "no_gradient_accumulation_fusion": switch("sharding.gradient_accumulation_fusion", on=False, off=True),
    "moe_router_dtype": lambda facts, entry: facts.put("sharding.moe_router_dtype", None if entry.word == "none" else entry.value, entry.where),
    "decoder_first_pipeline_num_layers": whole_number("sharding.decoder_first_pipeline_num_layers"),
    "decoder_last_pipeline_num_layers": whole_number("sharding.decoder_last_pipeline_num_layers"),
    **{key: word(f"sharding.{key}", _SHORT) for key in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")},
    "moe_expert_capacity_factor": "sharding.capacity_factor",
    "moe_token_dispatcher_type": word("sharding.moe_token_dispatcher_type", {"alltoall": "alltoall", "allgather": "allgather", "flex": "alltoall"}),
    "cross_entropy_loss_fusion": switch("~fused_loss"),
    "cross_entropy_fusion_impl": word("~fused_loss_impl", {"native": "native", "te": "te"}),
    "cross_entropy_loss_fusion_impl": word("~fused_loss_impl", {"native": "native", "te": "te"}),
    "optimizer_cpu_offload": switch("offload.optimizer", "cpu", None),
    "optimizer_offload_fraction": "sharding.optimizer_offload_fraction",
    "cpu_offloading": switch("offload.activations", "cpu", None),
    "~bridge": switch("~bridge"),
    "fp8": word("fp8", _FP8),
    "fp8_format": word("fp8", _FP8),
    "fp8_param_gather": switch("fp8_params", off=None),
    "transformer_engine": unless("true", "false"),
    "use_megatron_fsdp": when("", None, then="Megatron's own FSDP"),
    "use_torch_fsdp2": when("", None, then="its FSDP2"),
    "data_parallel_sharding_strategy": unless("no_shard", why="Megatron's own FSDP"),
    "fsdp": when("", None, then="FSDP under NeMo 1"),
    "fine_grained_activation_offloading": when("", None),
    "moe_layer_recompute": when("", None, then="the experts of each layer run again in backward"),
    "num_nodes": whole_number("~nodes"),
    "devices": whole_number("~gpus_per_node"),
    **_megatron_shape.KEYS,
    **_megatron_adapters.KEYS,
    **_megatron_deepspeed.KEYS,
    **dict.fromkeys(("freeze_language_model", "freeze_vision_model", "freeze_vision_projection"), when("", None, then="it is counted as trained")),
    "freeze_llm": when("", None, then="the language model is counted as trained"),
}

SHARED = frozenset(
    [
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "sequence_parallel",
        "recompute_granularity",
        "recompute_method",
        "recompute_num_layers",
        "recompute_modules",
        "use_distributed_optimizer",
        "use_precision_aware_optimizer",
        "moe_token_dispatcher_type",
        "moe_expert_capacity_factor",
        "cross_entropy_loss_fusion",
        "cross_entropy_fusion_impl",
        "moe_grouped_gemm",
        "moe_permute_fusion",
        "apply_rope_fusion",
        "gradient_accumulation_fusion",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "mtp_num_layers",
        "moe_router_dtype",
        "optimizer_cpu_offload",
        "optimizer_offload_fraction",
        "main_grads_dtype",
        "main_params_dtype",
        "exp_avg_dtype",
        "exp_avg_sq_dtype",
        "attention_backend",
        "fp8_format",
        "fp8_param_gather",
        "grad_reduce_in_bf16",
        "account_for_embedding_in_pipeline_split",
    ]
)
"""What front-ends over Megatron take under the same names."""


def finish(facts: Facts) -> None:
    """Whose code runs, virtual stages from their layers, and the model that shapes make."""
    if "~bridge" in facts.found:
        facts.default("dtype", "bfloat16", BRIDGE)
        facts.default("sharding.use_distributed_optimizer", value=True, framework=BRIDGE)
    if facts.get("recompute") == "full" and "~nemo_method" in facts.found:
        facts.put("recompute_method", facts.get("~nemo_method"), facts.where("~nemo_method"))
    facts.default("code", "megatron", VERSION)
    facts.default("sharding.engine", "megatron", VERSION)
    facts.default("optimizer", "adamw_torch_fused", VERSION)
    facts.default("dtype", "float32", VERSION)
    facts.default("attention", "flash_attention_2", VERSION)
    if facts.get("~fused_loss", False):
        facts.put("sharding.cross_entropy_fusion_impl", facts.get("~fused_loss_impl", "native"), facts.where("~fused_loss"))
    if "sharding.use_distributed_optimizer" not in facts.found:
        facts.default("sharding.use_distributed_optimizer", value=False, framework=VERSION)
    if facts.get("sharding.tp", 1) == 1 and "sharding.sp" in facts.found:
        facts.override("sharding.sp", value=False, where=f"{VERSION} switches sequence parallelism off without tensor parallelism")
    _megatron_deepspeed.finish(facts)
    _megatron_shape.model(facts)
    layers, per = facts.get("~shape.num_layers"), facts.get("~layers_per_virtual_stage")
    pp = facts.get("sharding.pp", 1)
    if layers and per:
        if layers % (pp * per):
            raise InputError(f"{layers} layers are not spread over {pp} stages in chunks of {per}", where=facts.where("~layers_per_virtual_stage"))
        facts.put("sharding.vpp", layers // (pp * per), facts.where("~layers_per_virtual_stage"))
    elif per:
        facts.unused.append(f"{facts.where('~layers_per_virtual_stage')}: num_layers_per_virtual_pipeline_stage {per}: needs num_layers; give --vpp")


FORMAT = Format(
    name="megatron",
    title="Megatron-LM flags, Megatron-Bridge and NeMo YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=(*IGNORED, "peft.*"),
    defaults={"micro_batch": 1},
    prepare=prepare,
    finish=finish,
    order=60,
    notes="The sizes of a model make one as Megatron-core builds it, where they or the tokenizer say how large the vocabulary is; other models must be "
    "named. Of NeMo 2 and of recipes in Python only what stands in the YAML or on the command line is seen.",
)


def export(run: Run) -> str:
    """Flags of ``pretrain_gpt.py``, one to a line.

    Raises:
        InputError: Megatron does not run it.
    """
    from memcalc.importers.formats._megatron import flags

    return flags(run)
