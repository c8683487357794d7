"""Run → Job for servers: what is served, on how many cards, and what was left open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memcalc.engine.cache import layer_caches
from memcalc.engine.ranks import num_layers
from memcalc.engine.serving.experts import check_experts
from memcalc.errors import InputError, ShardingError
from memcalc.specs.job import Job, Mesh
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.specs.model import ModelSpec

LLAMACPP = "llamacpp"

UNSAID_MODEL_LEN = 2048
"""Tokens, where a model's file says no length: the same in vLLM (config/model.py, `_get_and_verify_max_len`), SGLang (utils/hf_transformers_utils.py,
`get_context_length`) and TensorRT-LLM (_torch/models/modeling_utils.py, `infer_max_seq_len`)."""

OF_ENGINE: dict[str, tuple[str, ...]] = {
    "gpu_memory_utilization": ("vllm",),
    "mem_fraction_static": ("sglang",),
    "free_gpu_memory_fraction": ("trtllm",),
    "kv_cache_memory_bytes": ("vllm",),
    "num_gpu_blocks_override": ("vllm",),
    "max_total_tokens": ("sglang",),
    "cpu_offload_gb": ("vllm",),
    "enable_lora": ("vllm",),
    "max_loras": ("vllm",),
    "max_lora_rank": ("vllm",),
    "enable_expert_parallel": ("vllm",),
    "enforce_eager": ("vllm", "sglang"),
    "speculative_model": ("vllm", "sglang"),
    "speculative_method": ("vllm", "sglang"),
    "num_speculative_tokens": ("vllm", "sglang"),
    "enable_dp_attention": ("sglang",),
    "max_num_batched_tokens": ("vllm", "sglang", "trtllm"),
    "max_num_seqs": ("vllm", "sglang", "trtllm"),
    "block_size": ("vllm", "sglang", "trtllm"),
    "n_gpu_layers": (LLAMACPP,),
    "cache_type_k": (LLAMACPP,),
    "cache_type_v": (LLAMACPP,),
    "ubatch_size": (LLAMACPP,),
    "flash_attn": (LLAMACPP,),
}
"""The engines that read each of the keys that not all have."""


def resolve_server(run: Run) -> Job:
    """Everything that a server's run leaves open, decided.

    Raises:
        InputError: it does not serve, names no card, or no length.
        ShardingError: degrees that do not go together.
    """
    from memcalc.engine.resolve import mesh_of
    from memcalc.models.read import read_model

    if run.task != "inference":
        raise InputError(f"{run.code} serves, and the task is {run.task}; give task: inference, or code: transformers", where="code")
    if run.hardware.gpu is None and run.code != LLAMACPP:
        raise InputError(f"{run.code} takes a share of a card, and none is named: give --gpu (`memcalc gpus` lists them)", where="hardware.gpu")
    model = _stored(run, read_model(run.model))
    mesh = layered(run) if run.code == LLAMACPP else spread(run) if run.serving.enable_dp_attention else mesh_of(run)
    if not layer_caches(model.blocks):
        raise InputError(f"{model.name} remembers nothing of a sequence, so {run.code} makes no cache for it; use code: transformers", where="model")
    check_degrees(run, model, mesh)
    given, most = run.serving.max_model_len or run.seq_len, model.max_position_embeddings
    length = given or most or UNSAID_MODEL_LEN
    why = "what the model is made for" if most else f"what {run.code} takes of a model that does not say"
    assumptions = [] if given else [f"max_model_len {length:,}: {why}"]
    ignored = tuple(
        f"serving.{key}: {run.code} has no such key" for key, engines in OF_ENGINE.items() if run.code not in engines and key in run.serving.model_fields_set
    )
    notes: tuple[str, ...] = ()
    if most and length > most:
        notes = (f"{model.name} is made for {most:,} tokens: {run.code} takes a longer max_model_len only where it is told that it may",)
    job = Job(run, model, mesh, "ddp", 0, run.micro_batch, length, assumptions=tuple(assumptions), notes=notes, ignored=ignored)
    check_experts(job)
    return job


def layered(run: Run) -> Mesh:
    """llama.cpp's cards: each has some of the layers, whatever is said of other degrees.

    Raises:
        ShardingError: something is.
    """
    if run.sharding.tp > 1 or run.sharding.cp > 1 or (run.sharding.dp or 1) > 1:
        raise ShardingError("llama.cpp spreads layers over its cards: give --gpus, and no tp, cp or dp", where="sharding")
    return Mesh(pp=max(run.sharding.pp, run.hardware.gpus or 1))


def spread(run: Run) -> Mesh:
    """SGLang's ranks whose attention works on sequences of their own: dp is part of tp, and both are the same cards.

    Raises:
        ShardingError: tp is no multiple of dp, or the cards are others.
    """
    tp, pp, dp = run.sharding.tp, run.sharding.pp, run.sharding.dp or 1
    if run.code != "sglang":
        raise ShardingError(f"{run.code} has no attention by sequence inside tp; use code: sglang", where="serving.enable_dp_attention")
    if tp % dp:
        raise ShardingError(f"tp {tp} is no multiple of dp {dp}", where="sharding.dp")
    if run.hardware.gpus not in (None, tp * pp):
        raise ShardingError(f"tp {tp} * pp {pp} = {tp * pp} are the cards (dp {dp} is inside), not {run.hardware.gpus}", where="hardware.gpus")
    return Mesh(tp=tp, pp=pp)


def check_degrees(run: Run, model: ModelSpec, mesh: Mesh) -> None:
    """Heads divide over tensor-parallel ranks; KV heads do, or ranks divide over them; every stage has a layer."""
    if model.num_heads and model.num_heads % mesh.tp:
        raise ShardingError(f"{model.name} has {model.num_heads} attention heads, which tp {mesh.tp} does not divide", where="sharding.tp")
    groups = model.num_kv_heads
    if groups and groups % mesh.tp and mesh.tp % groups:
        raise ShardingError(f"{model.name} has {groups} KV heads: tp {mesh.tp} neither divides them nor is a multiple of them", where="sharding.tp")
    if mesh.pp > num_layers(model):
        raise ShardingError(f"{model.name} has {num_layers(model)} layers, too few for pp {mesh.pp}", where="sharding.pp")
    if mesh.pp > 1 and sum(block.role == "embedding" for block in model.blocks) > 1:
        raise ShardingError(f"{model.name} has an encoder and a decoder, whose stages are not counted; pp can be 1", where="sharding.pp")
    if mesh.cp > 1:
        raise ShardingError(f"{run.code} serves without context parallelism here; cp can be 1", where="sharding.cp")


def _stored(run: Run, model: ModelSpec) -> ModelSpec:
    """The model as it is loaded: its checkpoint's quantization, or the one asked for where it has none."""
    if run.quantization is None or model.quantization is not None or run.code == LLAMACPP:
        return model
    from memcalc.models.quantized import loading
    from memcalc.specs.quantization import Quantization, Rule

    name = run.quantization.removesuffix("_marlin")
    return replace(model, quantization=Quantization(name, name, (Rule(loading(name).scheme),), plain_head=True, layers_only=True))
