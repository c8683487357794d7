"""torchtitan's TOML (up to v0.2.2), and the flags of the same names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import FLAG, TRAINER, Entry, Facts, Rule, whole
from memcalc.importers.format import Format
from memcalc.importers.rules import names, switch, unless, when, whole_number
from memcalc.specs.run import Run

VERSION = "torchtitan 0.2.2"
FLAVORS = {
    "llama3": "llama-3.1-{}", "llama4": "llama-4-{}", "qwen3": "qwen3-{}", "deepseek_v3": "deepseek-v3", "deepseek_v2": "deepseek-v2",
}  # fmt: skip
SCHEDULES = {
    "1f1b": "1f1b",
    "gpipe": "gpipe",
    "interleaved1f1b": "interleaved",
    "interleavedzerobubble": "zero_bubble",
    "zbvzerobubble": "zbv",
    "looped bfs": "gpipe",
}


TWO_CHUNKS = ("interleaved1f1b", "interleavedzerobubble", "zbvzerobubble", "looped bfs")
"""Schedules that give each rank two stages unless the layers of one are said (torchtitan/distributed/pipeline_parallel.py)."""


def recognise(keys: Mapping[str, Any]) -> bool:
    """By ``training`` beside ``parallelism``, or ``model`` with a flavour."""
    model = keys.get("model")
    return isinstance(keys.get("training"), Mapping) and ("parallelism" in keys or (isinstance(model, Mapping) and "flavor" in model))


def _degree(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        if entry.number != -1:
            facts.put(name, entry.number, entry.where)

    return write


def _reshard(facts: Facts, entry: Entry) -> None:
    if entry.word in ("always", "never"):
        facts.put("sharding.reshard_after_forward", entry.word == "always", entry.where)
    elif entry.word != "default":
        raise InputError(f"fsdp_reshard_after_forward is {entry.value!r}; accepted: default, always, never", where=entry.where)


def _mode(facts: Facts, entry: Entry) -> None:
    if entry.word not in ("none", "full", "selective", "memory_budget"):
        raise InputError(f"activation_checkpoint.mode is {entry.value!r}; accepted: none, selective, full", where=entry.where)
    if entry.word == "memory_budget":
        facts.leave(entry, "a budget decides what is kept; everything is counted as kept")
        return
    facts.put("recompute", entry.word, entry.where)


def _selective(facts: Facts, entry: Entry) -> None:
    if entry.word != "op":
        facts.put("~every", entry.number, entry.where)


def schedule(facts: Facts, entry: Entry) -> None:
    """A schedule by PyTorch's name for it."""
    if entry.word in SCHEDULES:
        facts.put("~schedule", SCHEDULES[entry.word], entry.where)
        facts.put("~two_chunks", entry.word in TWO_CHUNKS, entry.where)
    else:
        facts.leave(entry)


def _registered(facts: Facts, entry: Entry) -> None:
    """A function that makes the configuration, of which its name tells the model."""
    match = re.fullmatch(r"([a-z]+(?:_v)?\d+)_(\d+(?:\.\d+)?b(?:_a\d+b)?)(?:_\w+)?", entry.word)
    if match is not None and match.group(1) in FLAVORS:
        facts.put("~titan_name", match.group(1), entry.where)
        facts.put("~titan_flavor", match.group(2).replace("_", "-"), entry.where)
    facts.leave(entry, "what it sets in Python is not seen; give lengths, batches and recomputation beside it")


def _converters(facts: Facts, entry: Entry) -> None:
    if entry.value:
        facts.leave(entry, "8-bit kernels keep other copies")


KEYS: dict[str, Rule] = {
    "model.name": "~titan_name",
    "model.flavor": "~titan_flavor",
    "model.hf_assets_path": "~hf_assets",
    "model.tokenizer_path": "~tokenizer",
    "model.converters": _converters,
    "training.local_batch_size": whole_number("micro_batch"),
    "training.batch_size": whole_number("micro_batch"),
    "training.global_batch_size": _degree("~global_batch"),
    "training.seq_len": whole_number("seq_len"),
    "training.max_context_length": whole_number("seq_len"),
    "training.num_tokens_per_microbatch_per_dp_rank": whole_number("~tokens"),
    "config": _registered,
    "training.dtype": "dtype",
    "training.mixed_precision_param": "autocast",
    "training.mixed_precision_reduce": "sharding.reduce_dtype",
    "training.enable_cpu_offload": switch("offload.params", "cpu", None),
    "training.compile": when("", None, then="compiled code keeps other tensors"),
    "parallelism.data_parallel_shard_degree": _degree("~dp_shard"),
    "parallelism.data_parallel_replicate_degree": _degree("~dp_replicate"),
    "parallelism.fsdp_reshard_after_forward": _reshard,
    "parallelism.tensor_parallel_degree": whole_number("sharding.tp"),
    "parallelism.pipeline_parallel_degree": whole_number("sharding.pp"),
    "parallelism.context_parallel_degree": whole_number("sharding.cp"),
    "parallelism.expert_parallel_degree": whole_number("sharding.ep"),
    "parallelism.expert_tensor_parallel_degree": whole_number("sharding.etp"),
    "parallelism.pipeline_parallel_schedule": schedule,
    "parallelism.pipeline_parallel_microbatch_size": whole_number("~pp_micro"),
    "parallelism.enable_async_tensor_parallel": unless("false"),
    "parallelism.disable_loss_parallel": unless("false", why="logits whole on every rank"),
    "activation_checkpoint.mode": _mode,
    "activation_checkpoint.selective_ac_option": _selective,
    "optimizer.name": lambda facts, entry: facts.put("~titan_optimizer", entry.word, entry.where),
    "optimizer.implementation": lambda facts, entry: facts.put("~titan_kernel", entry.word, entry.where),
    "optimizer.early_step_in_backward": when("", None, then="a step for each gradient as it arises"),
    "compile.enable": when("", None, then="compiled code keeps other tensors than the modules that are counted"),
    "quantize.*": unless("false", why="8-bit kernels keep other copies"),
    "float8.*": unless("false"),
}


def pipelined(facts: Facts, *, framework: str) -> None:
    """Of a pipeline the micro-batches that go through it, which a rank's batch is cut into, and two stages of a rank where its schedule has them."""
    if facts.get("sharding.pp", 1) == 1:
        return
    if facts.get("~schedule"):
        facts.put("sharding.pp_schedule", facts.get("~schedule"), facts.where("~schedule"))
    if facts.get("~two_chunks"):
        facts.default("sharding.vpp", value=2, framework=framework)
    local, part = whole(facts.get("micro_batch", 1), name="micro_batch"), max(facts.get("~pp_micro", 1), 1)
    if local % part:
        raise InputError(f"a batch of {local} is not cut into micro-batches of {part}", where=facts.where("~pp_micro", "micro_batch"))
    if facts.found["micro_batch"].rank < FLAG and local != part:
        facts.override("micro_batch", part, f"{facts.where('micro_batch', '~pp_micro')}: what goes through the pipeline at a time")
        if facts.get("~global_batch") is None or facts.get("~schedule") == "gpipe":
            facts.put("grad_accum", local // part, facts.where("~pp_micro"))


def finish(facts: Facts) -> None:
    """Engine, optimizer, model, micro-batches."""
    for name, value in {"dtype": "float32", "autocast": "bfloat16", "sharding.reduce_dtype": "float32", "recompute": "selective"}.items():
        facts.default(name, value, VERSION)
    facts.put("code", "torchtitan", VERSION)
    if "~tokens" in facts.found:
        facts.put("micro_batch", max(facts.get("~tokens") // max(whole(facts.get("seq_len"), name="seq_len"), 1), 1), facts.where("~tokens", "seq_len"))
    facts.default("sharding.engine", "fsdp2", VERSION)
    facts.default("sharding.fsdp_wrap_ends", value=True, framework=VERSION)
    optimizer, kernel = facts.get("~titan_optimizer", "adamw"), facts.get("~titan_kernel", "fused")
    known = optimizer in ("adamw", "adam")
    facts.put("optimizer", {"fused": "adamw_torch_fused"}.get(kernel, "adamw_torch") if known else optimizer, facts.where("~titan_optimizer"))
    if kernel == "for-loop":
        facts.put("optimizer_foreach", value=False, where=facts.where("~titan_kernel"))
    if facts.get("sharding.tp", 1) > 1:
        facts.default("sharding.sp", value=True, framework=VERSION)
    pipelined(facts, framework=VERSION)
    if facts.get("sharding.pp", 1) > 1 and "sharding.reshard_after_forward" not in facts.found:
        facts.default("sharding.reshard_after_forward", value=False, framework=f"{VERSION} beside a pipeline")
    name, flavor = facts.get("~titan_name"), facts.get("~titan_flavor")
    if name and flavor:
        known_name = FLAVORS.get(str(name), f"{name}-{{}}").format(str(flavor).lower())
        facts.put("model", known_name, facts.where("~titan_flavor"))
    if "~every" in facts.found:
        facts.unused.append(
            f"{facts.where('~every')}: activation_checkpoint.selective_ac_option {facts.get('~every')}: every n-th layer; selective by operators is counted"
        )


FORMAT = Format(
    name="torchtitan",
    title="torchtitan TOML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "module job.* profiling.* metrics.* model.* optimizer.* lr_scheduler.* training.* checkpoint.* compile.* validation.* comm.* fault_tolerance.* "
        "memory_estimation.* experimental.* debug.* activation_checkpoint.* parallelism.context_parallel_* parallelism.pipeline_parallel_* "
        "parallelism.module_fqns_per_model_part quantize.linear.float8.filter_fqns ft.*"
    ),
    defaults={"micro_batch": 8, "seq_len": 2048},
    finish=finish,
    order=15,
    notes="`-1` degrees follow from the cards. Later versions are configured in Python: of those only the flags can be read.",
)


def export(run: Run) -> str:
    """The TOML of a run.

    Raises:
        InputError: torchtitan does not run it.
    """
    s = run.sharding
    if run.code != "torchtitan":
        raise InputError("the run is not torchtitan's: give it code torchtitan", where="code")
    if run.lora is not None or run.quantization is not None or s.engine not in (None, "fsdp2"):
        raise InputError("torchtitan's TOML cannot say this", where="lora" if run.lora is not None else "sharding.engine")
    name, _, size = run.model.rpartition("-")
    flavor = next((key for key, text in FLAVORS.items() if "{}" in text and text.format(size) == run.model), name)
    world = run.hardware.gpus or (s.dp or 1) * s.tp * s.pp * s.cp
    shard = (s.dp or world // (s.tp * s.pp * s.cp)) // s.dp_replicate
    sections: dict[str, dict[str, Any]] = {
        "model": {"name": flavor, "flavor": size.upper()},
        "training": {
            "local_batch_size": run.micro_batch,
            "seq_len": run.seq_len or 4096,
            "dtype": run.dtype,
            "mixed_precision_param": run.autocast or run.dtype,
            "mixed_precision_reduce": s.reduce_dtype or run.autocast or run.dtype,
            "enable_cpu_offload": run.offload.params == "cpu",
            "global_batch_size": run.micro_batch * run.grad_accum * shard * s.dp_replicate,
        },
        "parallelism": {
            "data_parallel_shard_degree": shard,
            "data_parallel_replicate_degree": s.dp_replicate,
            "tensor_parallel_degree": s.tp,
            "pipeline_parallel_degree": s.pp,
            "context_parallel_degree": s.cp,
            "expert_parallel_degree": s.ep,
            "fsdp_reshard_after_forward": "always" if s.reshard_after_forward else "never",
        },
        "activation_checkpoint": {"mode": run.recompute},
        "optimizer": {"name": "AdamW", "implementation": "fused" if run.optimizer.endswith("fused") else "foreach"},
    }
    return "\n".join(f"[{section}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items()) for section, keys in sections.items())


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
