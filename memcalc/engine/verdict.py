"""From allocated bytes to what the card shows, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from memcalc.engine.plan import Plan
from memcalc.engine.result import RankEstimate, Reservation, Term, Verdict
from memcalc.engine.strategies import Strategy, strategy_for
from memcalc.engine.walk import Walked
from memcalc.formulas import overheads
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.run import Run
from memcalc.units import gib, parse_bytes

WORKSPACES = "device/library workspaces"
SOURCE = "c10/cuda/CUDACachingAllocator.cpp, played through the step's tensors"


HOST_MARGIN = 0.1
"""The share of a host's memory that the system, page cache and data loaders are left."""


def reservation(
    job: Job, walked: Walked, allocated_bytes: int, *, capacity_bytes: int | None = None, steps: Sequence[tuple[Plan, Strategy]] | None = None
) -> Reservation:
    """What the caching allocator holds beyond the allocated bytes, found by playing a few steps through it.

    Where a card is named the allocator has its capacity, less what stands outside: rather than fail, it gives unused segments back.
    Of a pipeline stage one micro-batch is played: those in flight are tensors of the same sizes again. A capacity that is given counts in the
    place of the card's, and `steps` in the place of those that the run's lengths make.
    """
    from memcalc.engine.allocator import OutOfMemory
    from memcalc.engine.lengths import steps_of
    from memcalc.engine.replay import play

    if capacity_bytes is None and job.run.hardware.gpu is not None:
        capacity_bytes = find_gpu(job.run.hardware.gpu).capacity_bytes
    room = None if capacity_bytes is None else capacity_bytes - sum(t.bytes for t in device_terms(job))
    lazy = job.engine not in ("deepspeed", "megatron")
    options: dict[str, Any] = {"accumulated": job.run.grad_accum > 1, "training": job.run.task != "inference", "lazy_states": lazy}
    options["expandable"] = job.run.expandable_segments
    if job.run.task == "train" and job.mesh.pp == 1:
        options["steps"] = steps_of(job) if steps is None else steps
    try:
        allocator = play(walked.plan, walked.strategy, capacity_bytes=room if job.mesh.pp == 1 else None, **options)
        if room is not None and job.mesh.pp > 1:
            room -= max(allocated_bytes - allocator.peak_requested_bytes, 0)  # what the other micro-batches in flight take
            if allocator.peak_reserved_bytes > room:
                allocator = play(walked.plan, walked.strategy, capacity_bytes=room, **options)
    except OutOfMemory as error:
        short = max(error.reserved_bytes + error.num_bytes - allocated_bytes, 0)
        return Reservation((Term("reserved/held when a segment was refused", short, "reserved + wanted - allocated", {}, SOURCE),), 1, error.num_bytes)
    unused = allocator.peak_reserved_bytes - allocator.peak_allocated_bytes
    rounding = allocator.peak_allocated_bytes - allocator.peak_requested_bytes
    terms = (
        Term("reserved/held between blocks", max(unused, 0), "peak reserved - peak of blocks", {}, SOURCE),
        Term("reserved/rounding of blocks", max(rounding, 0), "peak of blocks - peak of tensors", {}, SOURCE),
    )
    return Reservation(terms, allocator.num_releases)


def device_terms(job: Job) -> tuple[Term, ...]:
    """What stands outside the allocator's tensors: context, workspaces, a communicator for each group of ranks."""
    card = find_gpu(job.run.hardware.gpu) if job.run.hardware.gpu is not None else None
    ranks = strategy_for(job).communicators(job)
    groups = overheads.communicators(ranks)
    workspaces = overheads.workspace_bytes(hopper=card is not None and card.hopper, training=job.run.task != "inference")
    return (
        Term("device/context", overheads.CUDA_CONTEXT_BYTES, "read", {}, "an A100 with torch 2.1.1, modules loaded lazily"),
        Term(WORKSPACES, workspaces, "cublas + cublasLt, of each thread", {}, "ATen/cuda"),
        *(Term(f"device/communicator of {name}", n, "read", {"ranks": ranks[name]}, "aiconfigurator, nccl_mem") for name, n in groups.items()),
    )


def verdict_for(job: Job, rank: RankEstimate) -> Verdict | None:
    """Whether the most loaded rank fits the card."""
    if job.run.hardware.gpu is None:
        return None
    gpu = find_gpu(job.run.hardware.gpu)
    return Verdict(gpu.name, gpu.capacity_bytes, rank.device_bytes)


def host_capacity(run: Run) -> int | None:
    """What a node's host has, where the run says so."""
    return None if run.hardware.host_memory is None else parse_bytes(run.hardware.host_memory, where="hardware.host_memory")


def with_host(verdict: Verdict | None, run: Run, host_bytes: int) -> Verdict | None:
    """The verdict, which is no where the host has too little, whatever room the card has: the kernel ends the process there."""
    capacity = host_capacity(run)
    if verdict is None or verdict.refusal or capacity is None or host_bytes <= (1 - HOST_MARGIN) * capacity:
        return verdict
    if host_bytes <= capacity:
        return replace(verdict, host_is_tight=True)
    return replace(verdict, refusal=f"each node's host would need {gib(host_bytes)}, and has {gib(capacity)}")
