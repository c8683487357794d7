"""TensorRT-LLM: flags of ``trtllm-serve``, and the keys of its YAML of options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers.facts import TRAINER, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import vllm
from memcalc.importers.rules import names, unless, whole_number

VERSION = "TensorRT-LLM 1.2"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its own names."""
    return any(key.startswith(("kv_cache_config", "kv_cache_free_gpu_", "moe_expert_parallel_size")) for key in keys)


KEYS: dict[str, Rule] = {
    "model": "model",
    "tp_size": whole_number("sharding.tp"),
    "tensor_parallel_size": whole_number("sharding.tp"),
    "pp_size": whole_number("sharding.pp"),
    "pipeline_parallel_size": whole_number("sharding.pp"),
    "ep_size": whole_number("sharding.ep"),
    "moe_expert_parallel_size": whole_number("sharding.ep"),
    "max_seq_len": vllm.length,
    "max_batch_size": vllm.serving("max_num_seqs", whole=True),
    "max_num_tokens": vllm.serving("max_num_batched_tokens", whole=True),
    "kv_cache_free_gpu_memory_fraction": vllm.serving("free_gpu_memory_fraction"),
    "free_gpu_memory_fraction": vllm.serving("free_gpu_memory_fraction"),
    "kv_cache_config.free_gpu_memory_fraction": vllm.serving("free_gpu_memory_fraction"),
    "kv_cache_dtype": vllm.serving("kv_cache_dtype"),
    "kv_cache_config.dtype": vllm.serving("kv_cache_dtype"),
    "kv_cache_config.tokens_per_block": vllm.serving("block_size", whole=True),
    "kv_cache_config.host_cache_size": unless(0, why="a second cache on the host"),
    "kv_cache_config.max_tokens": unless(why="a cap of the pool"),
    "dtype": vllm.dtype,
    "enable_attention_dp": unless("false", why="attention by sequence inside tp"),
    "speculative_config*": unless(why="a second model that guesses"),
    "context_parallel_size": unless(1),
    "cp_size": unless(1),
}


def finish(facts: Facts) -> None:
    """It serves."""
    vllm.serves(facts, "trtllm", VERSION)


FORMAT = Format(
    name="trtllm",
    title="TensorRT-LLM YAML and flags",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "host port backend tokenizer* log_level trust_remote_code gpus_per_node cluster_size reasoning_parser tool_parser metadata_server_config_file "
        "server_role chat_template fail_fast_on_attention_window_too_large kv_cache_config.enable_* kv_cache_config.event_* scheduler_config* "
        "cuda_graph_config* enable_chunked_prefill print_iter_log stream_interval num_postprocess_workers disable_overlap_scheduler attn_backend "
        "moe_config* return_perf_metrics max_beam_width allreduce_strategy"
    ),
    finish=finish,
    order=64,
)
