"""What torchtitan decides about a run: which models it has, who shards them, and the buffers that its models hold."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

from memcalc.components import Attention
from memcalc.components.grouped import GroupedExperts
from memcalc.components.mla import LatentAttention
from memcalc.components.moe import Experts, MoE, Router
from memcalc.engine.settings import components
from memcalc.errors import InputError, ShardingError
from memcalc.specs.job import Mesh
from memcalc.specs.model import Block, Component, ModelSpec
from memcalc.specs.run import Run

C = TypeVar("C", bound=Component)

MODELS = ("llama", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3")
"""Families whose modules of torchtitan 0.2.2 are transcribed."""
ENGINES = ("fsdp2", "ddp")
"""``fully_shard``, or ``replicate`` where nothing is sharded."""


def refuse_torchtitan(run: Run, model: ModelSpec, mesh: Mesh, *, engine: str) -> None:
    """Say no to what torchtitan does not run, or memcalc does not transcribe.

    Raises:
        InputError: another model, engine, attention or way to train.
        ShardingError: a sequence that does not divide over the ranks that share it.
    """
    if model.model_type not in MODELS:
        raise InputError(f"of torchtitan's models {', '.join(MODELS)} are known, not {model.model_type}; use code: transformers", where="code")
    if engine not in ENGINES:
        raise InputError(f"torchtitan shards with fully_shard; use engine {' or '.join(ENGINES)}, not {engine}", where="sharding.engine")
    sparse = any(isinstance(m, (MoE, LatentAttention)) for block in model.blocks for m in components(block.module))
    if sparse and mesh.tp > 1:
        raise InputError("tensor parallelism of torchtitan's experts and latent attention is not transcribed; tp can be 1", where="sharding.tp")
    if run.task != "train":
        raise InputError("torchtitan trains; for inference use code: transformers or a server's", where="code")
    if engine == "ddp" and run.autocast is not None:
        raise InputError("autocast without fully_shard is not known for torchtitan; use engine fsdp2, whose policy computes in it", where="autocast")
    if run.attention == "eager":
        raise InputError("torchtitan's attention is one fused kernel; use sdpa", where="attention")
    for key in ("lora", "quantization", "trainable_layers", "recompute_method"):
        if getattr(run, key) is not None:
            raise InputError("torchtitan 0.2.2 has no such thing; leave it out, or use code: transformers", where=key)
    parts = mesh.tp * (2 * mesh.cp if mesh.cp > 1 else 1)
    if run.seq_len is not None and run.seq_len % parts:
        raise ShardingError(
            f"seq_len {run.seq_len} does not divide by tp {mesh.tp}{f' * 2 * cp {mesh.cp}' if mesh.cp > 1 else ''}; "
            f"the nearest that do: {', '.join(str(n * parts) for n in (run.seq_len // parts, run.seq_len // parts + 1) if n)}",
            where="seq_len",
        )


def as_torchtitan(run: Run, model: ModelSpec, *, seq_len: int) -> tuple[Run, ModelSpec]:
    """The run with torchtitan's groups (table, and norm with head, apart), and the model with its buffers: angles of all positions.

    Source: torchtitan/models/llama3/infra/parallelize.py, apply_fsdp; llama3/model/model.py, precompute_freqs_cis (complex64);
    qwen3/model/model.py, precompute_rope_cache (cosines and sines in fp32).
    """
    if "fsdp_wrap_ends" not in run.sharding.model_fields_set:
        run = run.model_copy(update={"sharding": run.sharding.model_copy(update={"fsdp_wrap_ends": True})})
    blocks = tuple(replace(block, module=as_grouped(block.module)) for block in model.blocks)
    return run, replace(model, blocks=blocks, buffer_bytes=buffer_bytes(blocks, seq_len=seq_len))


def buffer_bytes(blocks: tuple[Block, ...], *, seq_len: int) -> int:
    """Angles of all positions, once; and of each layer with experts, a correction and a count for each expert in fp32 (MoE.__init__)."""
    angles = counts = 0
    for block in blocks:
        for m in components(block.module):
            if isinstance(m, LatentAttention):
                angles = 4 * m.rope_dim
            elif isinstance(m, Attention):
                angles = 4 * m.head_dim * (1 if m.q_norm is None else 2)
            elif isinstance(m, Experts):
                counts += block.repeat * 8 * int(m.count.size)
    return angles * seq_len + counts


def as_grouped(module: C) -> C:
    """A component with experts whose weights are stacked apart, and routers in the model's dtype."""
    if isinstance(module, Experts):
        return GroupedExperts(module.count, module.hidden, module.intermediate, module.activation)  # type: ignore[return-value]
    changed = {f.name: as_grouped(value) for f in fields(module) if isinstance(value := getattr(module, f.name), Component)}
    return replace(module, **changed, **({"dtype": None} if isinstance(module, Router) else {}))
