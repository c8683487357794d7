"""SGLang: a share of the card for weights and cache; what is outside it is for activations and graphs.

Source: SGLang 0.5.23, srt/server_args.py, ``_handle_gpu_memory_settings``; srt/model_executor/model_runner.py, ``profile_max_num_token``.
"""

from __future__ import annotations

from memcalc.engine.result import Term
from memcalc.engine.serving.budget import Budget, card_of, policy_of
from memcalc.engine.serving.rank import Rank
from memcalc.formulas import overheads
from memcalc.formulas import serving as formulas
from memcalc.specs.job import Job
from memcalc.units import GiB, MiB

TIERS: tuple[tuple[int, int, int, int], ...] = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
"""Up to how many GiB, tokens of a prefill chunk, largest batch of a decode graph with tp below 4, and from 4 on."""
LARGEST = (16384, 512)


def budget(job: Job, rank: Rank) -> Budget:
    """What the engine makes of the card on this rank."""
    asked, card, mesh = job.run.serving, card_of(job), job.mesh
    chunk, decode = defaults(card.capacity_bytes, mesh.tp)
    chunk = asked.max_num_batched_tokens or chunk
    fraction = asked.mem_fraction_static
    assumptions = [] if asked.max_num_batched_tokens else [f"chunked_prefill_size {chunk:,}: SGLang's for this card"]
    if fraction is None:
        total = card.smi_mib or card.capacity_bytes / MiB
        fraction = formulas.sglang_fraction(total_mib=total, chunked_prefill=chunk, tp=mesh.tp, pp=mesh.pp, decode_max_bs=0 if asked.enforce_eager else decode)
        assumptions.append(f"mem_fraction_static {fraction:g}: SGLang's for this card (sizes of its prefill graphs are not counted)")
    groups = overheads.communicators({"tp": mesh.tp, "pp": mesh.pp})
    device = (
        Term("device/context", overheads.CUDA_CONTEXT_BYTES, "read", {}, "an A100 with torch 2.1.1"),
        *(Term(f"device/communicator of {name}", n, "read", {}, "aiconfigurator, nccl_mem") for name, n in groups.items()),
    )
    free = card.capacity_bytes - sum(t.bytes for t in device)
    outside = free - int(free * fraction)
    left = free - rank.weights_bytes - outside
    policy = policy_of(job, block=1, step_tokens=None)
    if asked.max_total_tokens is not None:
        left = min(left, asked.max_total_tokens * sum(c.num_layers * c.token_bytes(policy) for c in rank.caches))
    spare = Term("activations/outside mem_fraction_static", outside, "free * (1 - mem_fraction_static)", {"fraction": fraction}, "SGLang")
    note = "SGLang leaves activations and graphs what mem_fraction_static does not take: shown is that room, not their size"
    return Budget(free, rank.weights, (spare,), (), device, left, policy, "", tuple(assumptions), (note,))


def defaults(capacity_bytes: int, tp: int) -> tuple[int, int]:
    """Tokens of a prefill chunk and the largest batch of a decode graph.

    >>> defaults(80 * 2**30, 1), defaults(24 * 2**30, 4), defaults(180 * 2**30, 8)
    ((8192, 256), (4096, 160), (16384, 512))
    """
    for size, chunk, few, many in TIERS:
        if capacity_bytes < size * GiB:
            return chunk, few if tp < 4 else many
    return LARGEST
