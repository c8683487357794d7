"""NeMo Automodel's YAML, and its overrides of the same names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcalc.importers import adapters
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import torchtitan
from memcalc.importers.rules import attention, names, switch, unless, when, whole_number, word

VERSION = "NeMo Automodel 0.4"
OPTIMIZERS = {"adam": "adamw_torch", "adamw": "adamw_torch", "fusedadam": "adamw_torch_fused", "sgd": "sgd"}
LOSSES = {"maskedcrossentropy": "cross_entropy", "fusedlinearcrossentropy": "cut_cross_entropy", "chunkedcrossentropy": "chunked_output"}
CHECKPOINTS = {"true": "submodules", "full": "submodules", "false": "none", "none": None}
"""``selective``, which keeps what some operators make, is not known for these modules."""
STRATEGIES = {"fsdp2": "fsdp2", "fsdp2manager": "fsdp2", "fsdp2config": "fsdp2", "ddp": "ddp", "ddpmanager": "ddp", "ddpconfig": "ddp"}


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``_target_`` in its model beside how it runs."""
    model = keys.get("model")
    return isinstance(model, Mapping) and "_target_" in model and ("distributed" in keys or "step_scheduler" in keys)


def _kind(facts: Facts, entry: Entry) -> None:
    name = str(entry.value)
    if "SequenceClassification" in name or "Encoder" in name:
        facts.leave(entry, "logits of all tokens are counted, which it has none of")


def _size(name: str) -> Rule:
    """A degree; none leaves it to the cards."""

    def write(facts: Facts, entry: Entry) -> None:
        if entry.word not in ("none", "null"):
            facts.put(name, entry.number, entry.where)

    return write


def _length(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("none", "null") and entry.number > 0:
        facts.put("seq_len", entry.number, entry.where)


def _class(name: str, known: Mapping[str, str], *, counted: str) -> Rule:
    """A class by the last part of its path; another is left, with what is counted in its place."""

    def write(facts: Facts, entry: Entry) -> None:
        found = known.get(entry.word.rpartition(".")[2])
        if found is None:
            facts.leave(entry, f"{counted} is counted")
        else:
            facts.put(name, found, entry.where)

    return write


def _offload(facts: Facts, entry: Entry) -> None:
    if "offload" in entry.word:
        facts.put("offload.params", "cpu", entry.where)


def _dtype(name: str) -> Rule:
    """``bf16``, ``bfloat16`` or ``torch.bfloat16``; auto is the checkpoint's."""

    def write(facts: Facts, entry: Entry) -> None:
        short = entry.word.removeprefix("torch.")
        facts.put(name, {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(short, short), entry.where)

    return write


def _optimizer(facts: Facts, entry: Entry) -> None:
    name = entry.word.rpartition(".")[2]
    facts.put("~optimizer", OPTIMIZERS.get(name, name), entry.where)


def _patterns(name: str) -> Rule:
    """Patterns with ``*`` as one regular expression; ``*`` alone is every linear layer."""

    def write(facts: Facts, entry: Entry) -> None:
        items = [str(item) for item in (entry.value if isinstance(entry.value, list) else [entry.value])]
        every = "*" in items and name == "lora.target_modules"
        if items:
            facts.put(name, "all-linear" if every else "|".join(re.escape(item).replace(r"\*", ".*") for item in items), entry.where)

    return write


def _rank(facts: Facts, entry: Entry) -> None:
    facts.put("~lora", value=True, where=entry.where)
    facts.put("lora.r", entry.number, entry.where)


def _pipeline(place: str) -> dict[str, Rule]:
    """Keys of the pipeline, which once stood elsewhere."""
    return {
        f"{place}.pp_schedule": torchtitan.schedule,
        f"{place}.pp_microbatch_size": whole_number("~pp_micro"),
        f"{place}.pp_batch_size": unless(),
        f"{place}.layers_per_stage": lambda facts, entry: facts.leave(entry, "two stages of each rank are counted under an interleaved schedule; give --vpp"),
    }


KEYS: dict[str, Rule] = {
    "model.pretrained_model_name_or_path": "model",
    "model.config.pretrained_model_name_or_path": "model",
    "model.config.name_or_path": "model",
    "model.config": "model",
    "model._target_": _kind,
    "model.torch_dtype": _dtype("~load_dtype"),
    "model.attn_implementation": attention,
    "model.backend.attn": attention,
    "model.use_liger_kernel": when("", None, then="Liger's kernels of models that are transformers' own"),
    "model.num_nextn_predict_layers": unless(0, why="modules that predict further tokens"),
    "model.config.num_hidden_layers": unless(why="another number of layers than the model's"),
    "model.backend.te_fp8.recipe": unless(why="8-bit kernels keep other copies"),
    "distributed._target_": _class("~engine", STRATEGIES, counted="fsdp2"),
    "distributed.strategy": _class("~engine", STRATEGIES, counted="fsdp2"),
    "distributed.dp_size": _size("~dp_size"),
    "distributed.dp_replicate_size": _size("~dp_replicate"),
    "distributed.tp_size": _size("sharding.tp"),
    "distributed.pp_size": _size("sharding.pp"),
    "distributed.cp_size": _size("sharding.cp"),
    "distributed.ep_size": _size("sharding.ep"),
    "distributed.sequence_parallel": switch("~sp"),
    "distributed.activation_checkpointing": word("recompute", CHECKPOINTS, otherwise="leave"),
    "distributed.reshard_after_forward": switch("sharding.reshard_after_forward"),
    "distributed.defer_fsdp_grad_sync": switch("~defers"),
    "distributed.offload_policy._target_": _offload,
    "distributed.mp_policy.param_dtype": _dtype("~param_dtype"),
    "distributed.mp_policy.reduce_dtype": _dtype("sharding.reduce_dtype"),
    "distributed.moe.reshard_after_forward": unless("true", why="gathered experts stay until backward"),
    **_pipeline("distributed.pipeline"),
    **_pipeline("autopipeline"),
    "parallelizer.activation_checkpointing": word("recompute", CHECKPOINTS, otherwise="leave"),
    "step_scheduler.local_batch_size": whole_number("micro_batch"),
    "step_scheduler.global_batch_size": whole_number("~global_batch"),
    **{f"packed_sequence.{key}": _length for key in ("packed_sequence_size", "pack_size")},
    **{f"dataset.{key}": _length for key in ("seq_length", "seq_len", "max_length")},
    "dataloader.collate_fn.max_length": _length,
    "loss_fn._target_": _class("loss", LOSSES, counted="cross entropy of whole logits"),
    "loss_fn.fp32_upcast": "upcast_logits",
    "optimizer._target_": _optimizer,
    "optimizer.fused": switch("~fused"),
    "optimizer.foreach": switch("optimizer_foreach", off=False, on=None),
    "optimizer.master_weights": when("", None, then="fp32 copies of the weights"),
    "optimizer.momentum": "momentum",
    "peft.dim": _rank,
    "peft.dropout": "lora.dropout",
    "peft.use_dora": switch("lora.use_dora"),
    "peft.lora_dtype": _dtype("lora.dtype"),
    "peft.target_modules": _patterns("lora.target_modules"),
    "peft.exclude_modules": _patterns("lora.exclude_modules"),
    "peft.match_all_linear": switch("~every_linear"),
    "quantization.load_in_4bit": adapters.four,
    "quantization.load_in_8bit": adapters.eight,
    "quantization.bnb_4bit_quant_type": "~quant_type",
    "quantization.bnb_4bit_use_double_quant": switch("~double_quant"),
    "quantization.bnb_4bit_quant_storage": "~quant_storage",
    "teacher_model.pretrained_model_name_or_path": "roles.teacher.model",
    "fp8.enabled": when("", None, then="8-bit kernels keep other copies"),
    "qat.enabled": when("", None, then="fake quantisation keeps copies of its own"),
    "compile.enabled": switch("torch_compile", off=None),
    "distributed.enable_compile": switch("torch_compile", off=None),
    **{f"freeze_config.freeze_{part}": when("", None, then="it is counted as trained") for part in ("vision_tower", "audio_tower", "embeddings")},
    "freeze_config.freeze_language_model": when("", None, then="it is counted as trained"),
    "neftune.noise_alpha": unless(0),
}


def finish(facts: Facts) -> None:
    """FSDP2 with its policy of bf16, adapters in the dtype of what they adapt, micro-batches of a pipeline."""
    if "roles.teacher.model" in facts.found:
        facts.put("task", "distill", facts.where("roles.teacher.model"))
    facts.default("~load_dtype", "bfloat16", VERSION)
    held, low = facts.get("~load_dtype"), facts.get("~param_dtype", "bfloat16")
    facts.put("dtype", held, facts.where("~load_dtype")) if not facts.found["~load_dtype"].is_default else facts.default("dtype", held, VERSION)
    if facts.cards > 1 or "~dp_size" in facts.found:
        facts.default("~engine", "fsdp2", VERSION)
    if facts.get("~engine") == "fsdp2":
        facts.default("sharding.reduce_dtype", "float32", VERSION)
        facts.default("sharding.fsdp_wrap_ends", value=False, framework=VERSION)
        facts.default("sharding.sync_each_batch", not facts.get("~defers", True), VERSION)
        if low != held:
            facts.put("autocast", low, facts.where("~param_dtype") if "~param_dtype" in facts.found else f"policy of {VERSION}")
    if facts.get("loss") == "cross_entropy":
        facts.default("holds_logits", value=True, framework=VERSION)  # a variable of the recipe (recipes/llm/train_ft.py)
    if facts.get("~sp", False):
        facts.unused.append(f"{facts.where('~sp')}: sequence parallelism beside DTensor's tensor parallelism; norms are counted whole")
    name, fused = facts.get("~optimizer", "adamw_torch"), facts.get("~fused", False)
    facts.put("optimizer", f"{name}_fused" if fused and name == "adamw_torch" else name, facts.where("~optimizer", "~fused"))
    if facts.get("~dp_size"):
        facts.put("sharding.dp", facts.get("~dp_size"), facts.where("~dp_size"))
    if facts.get("~lora", False):
        _adapters(facts, str(held))
    torchtitan.pipelined(facts, framework=VERSION)


def _adapters(facts: Facts, held: str) -> None:
    facts.default("lora.dtype", held, VERSION)
    if facts.get("~bits") is not None:
        facts.default("kbit_upcast", value=False, framework=VERSION)
    if facts.get("~every_linear", False) or facts.get("lora.target_modules") == "all-linear":
        facts.unused.append(f"{facts.where('~every_linear', 'lora.target_modules')}: the head, which gets an adapter, too, does not in what is counted")
        facts.put("lora.target_modules", "all-linear", facts.where("~every_linear"))
    elif "lora.exclude_modules" in facts.found:
        facts.default("lora.target_modules", "all-linear", VERSION)
    else:
        facts.default("lora.target_modules", ".*_proj", VERSION)


FORMAT = Format(
    name="automodel",
    title="NeMo Automodel YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "recipe recipe._target_ model.* processor.* tokenizer.* dataset* validation_dataset* _validation_* dataloader* validation_dataloader* collate_fn* "
        "packed_sequence.* step_scheduler.* optimizer.* lr_scheduler* loss_fn.* checkpoint.* rng.* dist_env.* wandb* mlflow* comet* ci.* clip_grad_norm.* "
        "compile.* fp8.* qat.* benchmark.* nvtx seed peft.* quantization.* distributed.* autopipeline.* parallelizer.* skypilot.* slurm.* nemo_run.* kd_* "
        "teacher_model.* teacher_distributed.* offload_teacher_model temperature freeze_config.* logging* log_* profiling.* prewarm.* tool_call_eval.*"
    ),
    defaults={"micro_batch": 1, "recompute": "none", "loss": "cross_entropy"},
    finish=finish,
    order=12,
    notes="Cards come from the launcher. Several are FSDP2, which computes in bf16 and reduces in fp32; weights are held in `model.torch_dtype`, and "
    "`auto`, the checkpoint's, counts as bf16. Norms, attention and network of each layer are checkpointed one by one: `recompute: submodules` (the latest "
    "takes layers of transformers' own classes whole, which keeps less).",
)  # fmt: skip
