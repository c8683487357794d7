"""What generates and what serves is told."""

from typing import Annotated, Any, Literal

from pydantic import Field

from memcalc.specs.spec import PATH, Count, Share, Spec


class GenerationSpec(Spec):
    """How transformers' ``generate`` keeps what it has seen, and guesses ahead (its names)."""

    cache_implementation: Literal["dynamic", "offloaded", "static", "offloaded_static", "quantized"] = Field(
        "dynamic", description="transformers: what keeps keys and values"
    )
    max_cache_len: Count | None = Field(None, description="static caches: tokens that they have room for, at least")
    cache_backend: Literal["quanto", "hqq", "fp8"] = Field("quanto", description="quantized caches: what packs them")
    cache_nbits: Annotated[int, Field(ge=1, le=8, strict=True)] = Field(4, description="quantized caches: bits of a value; quanto has 2 and 4")
    q_group_size: Count = Field(64, description="quantized caches: values that share a scale")
    residual_length: Count = Field(128, description="quantized caches: new tokens that wait as they are until all is packed again")
    assistant_model: str | None = Field(None, description="a smaller model that guesses tokens ahead (assisted decoding)", json_schema_extra=PATH)
    num_assistant_tokens: Count = Field(20, description="tokens that it guesses at once")


class LoadingSpec(Spec):
    """How transformers loads a model (``from_pretrained``); keys other than ``device_map`` and ``max_memory`` are of inference."""

    device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | None = Field(
        None, description="transformers: spread layers over the cards and the host, run by one process"
    )
    max_memory: dict[str, Any] | None = Field(None, description="what weights may take by place: {0: 20GiB, 1: 20GiB, cpu: 64GiB}")
    low_cpu_mem_usage: bool = Field(True, description="build the model without storage first; false, transformers 4's default: a whole copy on the host")


class ServingSpec(Spec):
    """What a serving engine is told, under the engine's own names; keys that several engines have go by vLLM's."""

    gpu_memory_utilization: Share | None = Field(None, description="vllm: share of the card for all that the engine has there")
    mem_fraction_static: Share | None = Field(None, description="sglang: share of the card for weights and cache")
    free_gpu_memory_fraction: Share | None = Field(None, description="trtllm: share for the cache of what is free once the engine is there")
    max_model_len: Count | None = Field(None, description="the longest sequence, prompt and answer; by default the model's own length")
    max_num_batched_tokens: Count | None = Field(None, description="tokens of one step (sglang: chunked_prefill_size; trtllm: max_num_tokens)")
    max_num_seqs: Count | None = Field(None, description="sequences of one step")
    kv_cache_dtype: str = Field("auto", description="how the cache is stored: auto (the weights' dtype), fp8, int8, int4, nvfp4, q8_0, …")
    kv_cache_memory_bytes: Count | None = Field(None, description="vllm: size of the cache, in the place of what is left of the share")
    block_size: Count | None = Field(None, description="tokens of a block of the cache")
    num_gpu_blocks_override: Count | None = Field(None, description="vllm: blocks of the cache, in the place of those that fit")
    max_total_tokens: Count | None = Field(None, description="sglang: tokens of the cache, at most")
    enforce_eager: bool = Field(False, description="no CUDA graphs")
    enable_expert_parallel: bool = Field(False, description="vllm: whole experts on each rank, not a slice of every one")
    cpu_offload_gb: Annotated[float, Field(ge=0)] = Field(0.0, description="vllm: GiB of each rank's weights that stay on the host")
    enable_lora: bool = Field(False, description="vllm: room for adapters on every linear layer")
    max_loras: Count = Field(1, description="vllm: adapters in one step")
    max_lora_rank: Count = Field(16, description="vllm: the highest rank of an adapter")
    speculative_model: str | None = Field(None, description="vllm, sglang: a draft model, with a cache of its own beside", json_schema_extra=PATH)
    speculative_method: Literal["draft_model", "eagle", "eagle3", "mtp", "ngram"] | None = Field(
        None, description="vllm, sglang: who guesses; mtp: the model's own modules for further tokens"
    )
    num_speculative_tokens: Count | None = Field(None, description="vllm, sglang: tokens that are guessed at once")
    enable_dp_attention: bool = Field(False, description="sglang: attention and its cache by sequence on each of the dp ranks inside tp, experts over all")
    n_gpu_layers: Annotated[int, Field(ge=0, strict=True)] | None = Field(None, description="llamacpp: layers on the cards, the output counted as one")
    cache_type_k: str | None = Field(None, description="llamacpp: how keys are stored (f16, q8_0, …)")
    cache_type_v: str | None = Field(None, description="llamacpp: how values are stored")
    ubatch_size: Count = Field(512, description="llamacpp: tokens of a micro-batch, for which the compute buffer is made")
    flash_attn: bool = Field(True, description="llamacpp: flash attention, without which all scores are held")
