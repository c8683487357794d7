"""SGLang: flags of its server, which are the keys of its YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers.facts import TRAINER, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import vllm
from memcalc.importers.rules import names, unless, whole_number

VERSION = "SGLang 0.5.23"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its own names."""
    return any(key in keys for key in ("mem_fraction_static", "model_path", "chunked_prefill_size")) and "peft_type" not in keys


KEYS: dict[str, Rule] = {
    "model_path": "model",
    "model": "model",
    "tp": whole_number("sharding.tp"),
    "tp_size": whole_number("sharding.tp"),
    "tensor_parallel_size": whole_number("sharding.tp"),
    "dp": whole_number("~dp_attention"),
    "dp_size": whole_number("~dp_attention"),
    "data_parallel_size": whole_number("~dp_attention"),
    "pp_size": whole_number("sharding.pp"),
    "pipeline_parallel_size": whole_number("sharding.pp"),
    "ep": whole_number("sharding.ep"),
    "ep_size": whole_number("sharding.ep"),
    "expert_parallel_size": whole_number("sharding.ep"),
    "enable_dp_attention": vllm.serving("enable_dp_attention"),
    "mem_fraction_static": vllm.serving("mem_fraction_static"),
    "context_length": vllm.length,
    "max_running_requests": vllm.serving("max_num_seqs", whole=True),
    "max_total_tokens": vllm.serving("max_total_tokens", whole=True),
    "chunked_prefill_size": vllm.serving("max_num_batched_tokens", whole=True),
    "max_prefill_tokens": vllm.serving("max_prefill_tokens", whole=True),
    "kv_cache_dtype": vllm.serving("kv_cache_dtype"),
    "page_size": vllm.serving("block_size", whole=True),
    "cuda_graph_max_bs": vllm.serving("cuda_graph_max_bs", whole=True),
    "disable_cuda_graph": vllm.serving("enforce_eager"),
    "dtype": vllm.dtype,
    "quantization": vllm.quantised,
    "cpu_offload_gb": vllm.serving("cpu_offload_gb"),
    "speculative_algorithm": vllm.guesses,
    "speculative_draft_model_path": vllm.serving("speculative_model"),
    "speculative_num_draft_tokens": vllm.serving("num_speculative_tokens", whole=True),
    "speculative_*": unless(why="how guesses are made and checked"),
    "enable_hierarchical_cache": unless("false", why="a second cache on the host"),
    "nnodes": whole_number("~nodes"),
}


def finish(facts: Facts) -> None:
    """It serves."""
    if facts.get("~dp_attention", 1) > 1:
        facts.put("sharding.dp", facts.get("~dp_attention"), facts.where("~dp_attention"))
    if facts.get("serving.enable_dp_attention", False):
        facts.default("~world", facts.get("sharding.tp", 1) * facts.get("sharding.pp", 1), f"{VERSION}: dp is inside tp")
    vllm.serves(facts, "sglang", VERSION)


FORMAT = Format(
    name="sglang",
    title="SGLang YAML and flags",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "router_* host port served_model_name trust_remote_code api_key tokenizer* random_seed load_format download_dir revision chat_template* "
        "tool_call_parser reasoning_parser log_* watchdog_timeout dist_* node_rank attention_backend sampling_backend disable_radix_cache schedule_* "
        "stream_* enable_metrics show_time_cost enable_torch_compile disable_overlap_schedule config grammar_backend device base_gpu_id "
        "completion_template"
    ),
    finish=finish,
    order=65,
)  # fmt: skip
