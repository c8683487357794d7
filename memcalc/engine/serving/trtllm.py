"""TensorRT-LLM: a share of what is free once weights, activations and libraries are there.

Source: TensorRT-LLM, KvCacheConfig; activations, libraries and communicators by aiconfigurator's constants (`memcalc.formulas.serving`).
"""

from __future__ import annotations

from memcalc.engine.result import Term
from memcalc.engine.serving.budget import Budget, card_of, policy_of
from memcalc.engine.serving.rank import Rank, has_experts
from memcalc.formulas import overheads
from memcalc.formulas import serving as formulas
from memcalc.specs.job import Job

FRACTION, NUM_TOKENS = 0.9, 8192
"""TensorRT-LLM's defaults of free_gpu_memory_fraction and max_num_tokens."""
BLOCK = 1
"""Tokens that a sequence's room is rounded to; aiconfigurator rounds to none, which for blocks of 32 differs by less than one block a sequence."""
OWNER = "aiconfigurator, sdk/backends/trtllm_backend.py"


def budget(job: Job, rank: Rank) -> Budget:
    """What the engine makes of the card on this rank."""
    asked, card, model, tp = job.run.serving, card_of(job), job.model, job.mesh.tp
    tokens, fraction = asked.max_num_batched_tokens or NUM_TOKENS, asked.free_gpu_memory_fraction or FRACTION
    assumptions = [] if asked.max_num_batched_tokens else [f"max_num_tokens {NUM_TOKENS:,}"]
    assumptions += [] if asked.free_gpu_memory_fraction else [f"free_gpu_memory_fraction {FRACTION}"]
    kind = "moe" if has_experts(rank) else "dense"
    size = formulas.trtllm_activation_bytes(num_tokens=tokens, width=model.num_heads * model.head_dim, tp=tp, kind=kind)
    device = (
        Term("device/engine and libraries", formulas.TRTLLM_OTHER_BYTES, "read", {}, "aiconfigurator, systems/h100_sxm.yaml"),
        Term("device/communicator of tp", overheads.nccl_bytes(tp), "read", {}, "aiconfigurator, nccl_mem"),
    )
    activations = (Term("activations/engine", size, "2 * max_num_tokens * num_heads * head_dim * c", {"tokens": tokens}, OWNER),)
    free = card.capacity_bytes - rank.weights_bytes - size - sum(t.bytes for t in device)
    left = formulas.trtllm_cache_bytes(free, fraction)
    note = "activations, libraries and the allocator's reserve are aiconfigurator's constants, read on H100"
    policy = policy_of(job, block=BLOCK, step_tokens=None)
    return Budget(card.capacity_bytes, rank.weights, activations, (), device, left, policy, "", tuple(assumptions), (note,))
