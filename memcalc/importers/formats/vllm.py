"""vLLM: flags of ``vllm serve``, which are the keys of its YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule, number
from memcalc.importers.format import Format
from memcalc.importers.rules import names, unless, whole_number
from memcalc.specs.fields import Leaf, find
from memcalc.specs.run import Run

VERSION = "vLLM 0.33"
MARKS = ("gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "enforce_eager", "tensor_parallel_size")


def recognise(keys: Mapping[str, Any]) -> bool:
    """By two of its flags, or one beside the model."""
    return sum(key in keys for key in MARKS) + ("model" in keys) > 1 and any(key in keys for key in MARKS)


def share(facts: Facts, entry: Entry) -> None:
    """Utilisation: a share of the card."""
    made = number(entry.value)
    if made is None or not 0 < made <= 1:
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: a share from 0 to 1", where=entry.where)
    facts.put("serving.gpu_memory_utilization", made, entry.where)


def serving(name: str, *, whole: bool = False) -> Rule:
    """A key of the serving engine under its own name."""

    def write(facts: Facts, entry: Entry) -> None:
        facts.put(f"serving.{name}", entry.number if whole else entry.value, entry.where)

    return write


def length(facts: Facts, entry: Entry) -> None:
    """The longest sequence; -1 and auto leave it to the engine."""
    if entry.number != -1:
        facts.put("seq_len", entry.number, entry.where)
        facts.put("serving.max_model_len", entry.number, entry.where)


def dtype(facts: Facts, entry: Entry) -> None:
    """Of the weights as loaded."""
    facts.put("dtype", entry.word, entry.where)


STORED = names(
    "compressed_tensors modelopt modelopt_fp4 modelopt_fp8 modelopt_mixed modelopt_mxfp8 quark gguf torchao inc auto_round moe_wna16 petit_nvfp4 w4afp8 qoq "
    "mxfp8 experts_int8 deepspeedfp gptq_bitblas bitblas"
)
"""Kernels for a checkpoint that says itself how its weights are stored."""
LOADED = {
    "bitsandbytes": "nf4", "ptpc_fp8": "fp8", "fbgemm_fp8": "fp8", "fp8_per_tensor": "fp8", "fp8_per_block": "fp8", "w8a8_fp8": "fp8",
    "int8_per_channel_weight_only": "int8", "w8a8_int8": "int8", "rtn": "int8",
}  # fmt: skip
"""What is made of weights as they are loaded, by the names of vLLM and SGLang."""


def quantised(facts: Facts, entry: Entry) -> None:
    """How weights are stored, where the checkpoint does not say."""
    name = entry.word.replace("-", "_")
    if name in STORED:
        facts.leave(entry, "weights are counted as the checkpoint stores them")
    else:
        facts.put("quantization", LOADED.get(name, entry.word), entry.where)


METHODS = {
    "draft_model": "draft_model", "eagle": "eagle", "eagle3": "eagle3", "mtp": "mtp", "deepseek_mtp": "mtp", "ngram": "ngram", "nextn": "mtp",
    "standalone": "draft_model",
}  # fmt: skip
"""Who guesses, by the names of vLLM and SGLang."""


def guesses(facts: Facts, entry: Entry) -> None:
    """Who guesses tokens ahead."""
    method = "mtp" if entry.word.endswith("_mtp") else METHODS.get(entry.word)
    if method is None:
        facts.leave(entry, "another way of guessing, which is not counted")
    else:
        facts.put("serving.speculative_method", method, entry.where)


def speculative(facts: Facts, entry: Entry) -> None:
    """The same as JSON in one argument, whose other keys say how guesses are made and checked."""
    try:
        told = json.loads(str(entry.value))
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: JSON with model, method and num_speculative_tokens", where=entry.where)
    for key, name in (("model", "speculative_model"), ("num_speculative_tokens", "num_speculative_tokens")):
        if key in told:
            facts.put(f"serving.{name}", told[key], entry.where)
    if "method" in told:
        guesses(facts, entry._replace(value=told["method"]))


KEYS: dict[str, Rule] = {
    "model": "model",
    "model_tag": "model",
    "tensor_parallel_size": whole_number("sharding.tp"),
    "pipeline_parallel_size": whole_number("sharding.pp"),
    "data_parallel_size": whole_number("sharding.dp"),
    "enable_expert_parallel": serving("enable_expert_parallel"),
    "gpu_memory_utilization": share,
    "max_model_len": length,
    "max_num_seqs": serving("max_num_seqs", whole=True),
    "max_num_batched_tokens": serving("max_num_batched_tokens", whole=True),
    "kv_cache_dtype": serving("kv_cache_dtype"),
    "kv_cache_memory_bytes": serving("kv_cache_memory_bytes", whole=True),
    "block_size": serving("block_size", whole=True),
    "num_gpu_blocks_override": serving("num_gpu_blocks_override", whole=True),
    "dtype": dtype,
    "quantization": quantised,
    "enforce_eager": serving("enforce_eager"),
    "cpu_offload_gb": serving("cpu_offload_gb"),
    "swap_space": unless(0, why="room on the host for sequences that wait, which today's engine computes anew"),
    "kv_offloading_size": serving("kv_offloading_size"),
    "enable_lora": serving("enable_lora"),
    "max_loras": serving("max_loras", whole=True),
    "max_lora_rank": serving("max_lora_rank", whole=True),
    "speculative_config": speculative,
    "speculative_config.model": serving("speculative_model"),
    "speculative_config.method": guesses,
    "speculative_config.num_speculative_tokens": serving("num_speculative_tokens", whole=True),
    "speculative_config*": unless(why="how guesses are made and checked"),
    "limit_mm_per_prompt*": unless(why="the encoder's profile"),
    "compilation_config*": unless(why="which graphs are captured"),
    "compilation_config": unless(why="which graphs are captured"),
    "hf_overrides*": unless(why="changes of the model's configuration"),
    "decode_context_parallel_size": unless(1),
}


SERVED = names(
    "gpu_memory_utilization max_num_batched_tokens max_num_seqs kv_cache_dtype kv_cache_memory_bytes block_size num_gpu_blocks_override enforce_eager "
    "enable_expert_parallel"
)


def finish(facts: Facts) -> None:
    """It serves."""
    serves(facts, "vllm", VERSION)


def serves(facts: Facts, engine: str, version: str) -> None:
    """A server of some engine on as many cards as its degrees say."""
    facts.put("task", "inference", version)
    code = find(("code",))
    if isinstance(code, Leaf) and engine in code.choices:
        facts.put("code", engine, version)
    else:
        facts.unused.append(f"{version}: its own kernels, budget and cache blocks are not counted yet; transformers' code is")
    facts.default("dtype", "bfloat16", version)
    cards = 1
    for name in ("sharding.tp", "sharding.pp", "sharding.dp"):
        cards *= facts.get(name, 1)
    if cards > 0:  # a degree that cannot be is refused where it stands
        facts.default("~world", cards, f"{version}: the product of its degrees")


FORMAT = Format(
    name="vllm",
    title="vLLM YAML and flags",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "host port served_model_name trust_remote_code api_key* tokenizer* seed load_format download_dir revision chat_template* "
        "enable_auto_tool_choice tool_call_parser reasoning_parser enable_prefix_caching no_enable_prefix_caching enable_chunked_prefill "
        "disable_log_* uvicorn_log_level max_log_len allowed_* generation_config override_generation_config* distributed_executor_backend config "
        "ssl_* root_path lora_modules* response_role enable_log_* disable_custom_all_reduce scheduling_policy async_scheduling code_revision hf_token "
        "middleware skip_tokenizer_init otlp_*"
    ),
    finish=finish,
    order=70,
    notes="Kebab and snake case are one. Numbers take `k` (1,000) and `K` (1,024); `max-model-len: auto` or `-1` is left open.",
)


def export(run: Run) -> str:
    """The flags of ``vllm serve``.

    Raises:
        InputError: it is no run that serves.
    """
    if run.task != "inference":
        raise InputError("vllm serves: give the run task inference", where="task")
    s = run.sharding
    words = [f"vllm serve {run.model}", f"--dtype {run.dtype}"]
    words += [f"--{name}-parallel-size {n}" for name, n in (("tensor", s.tp), ("pipeline", s.pp), ("data", s.dp or 1)) if n > 1]
    words += [f"--max-model-len {run.seq_len}"] if run.seq_len is not None else []
    for name, value in run.serving.as_dict().items():
        if name in SERVED and name in run.serving.model_fields_set:
            words += [f"--{name.replace('_', '-')}"] if value is True else [] if value is False else [f"--{name.replace('_', '-')} {value}"]
    words += [f"--quantization {run.quantization}"] if run.quantization is not None else []
    return " ".join(words) + "\n"
