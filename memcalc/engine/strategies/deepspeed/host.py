"""What DeepSpeed keeps in the host's memory with ZeRO-Offload and ZeRO-Infinity, on behalf of one rank.

Pinned memory comes from PyTorch's caching host allocator, which rounds every block up to a power of two; what the asynchronous I/O library locks
is not rounded. Optimizer states are ordinary, pageable memory (ops/adam/cpu_adam.py), whatever ``pin_memory`` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from memcalc.engine.result import Term
from memcalc.formulas.host import pinned_bytes
from memcalc.formulas.zero import sub_groups

if TYPE_CHECKING:
    from memcalc.engine.strategies.deepspeed.zero3 import Stage3
    from memcalc.engine.strategies.deepspeed.zero12 import Stage12

ADAM_STATES = 2
ADAM_WIDTH = 4
"""DeepSpeedCPUAdam keeps both moments in fp32 (``fp32_optimizer_states``), unless bf16 optimizer states are asked for."""


def held(name: str, sizes: Iterable[int], *, pinned: bool, source: str, **inputs: Any) -> Term:
    """A term of so many blocks.

    Args:
        name: what they are.
        sizes: bytes of each block.
        pinned: whether they are page-locked.
        source: where they are allocated.
        inputs: for the formula.
    """
    blocks = list(sizes)
    total = sum(pinned_bytes(n) for n in blocks) if pinned else sum(blocks)
    formula = "sum of blocks, each rounded up to a power of two" if pinned else "sum of blocks"
    return Term(f"host/{'pinned' if pinned else 'pageable'}/{name}", total, formula, {"num_blocks": len(blocks), **inputs}, source)


def stage12_terms(rank: Stage12) -> tuple[Term, ...]:
    """Stages 1 and 2 with the optimizer on the host (zero/stage_1_and_2.py, ``__init__``)."""
    if not isinstance(rank.ranks, int):
        return ()
    if not rank.offloads:
        return rank.paged()
    pinned, part, source = rank.zero.offload_optimizer.pin_memory, int(rank.partition), "zero/stage_1_and_2.py"
    terms = [
        held("master weights", [part * rank.master_width], pinned=pinned, source=source, partition=part),
        held("weights on their way to the card", [part * rank.width], pinned=pinned, source=source, partition=part),
        held("gradients", [part * rank.master_width], pinned=pinned, source=source, partition=part),
        held("gradient on its way", [rank.largest * rank.width], pinned=pinned, source=source, largest=rank.largest),
        moments(rank, part),
    ]
    if rank.job.run.grad_accum > 1:
        kept = [m.numel * rank.width for m in rank.members if rank.is_own(m)]
        terms.append(held("accumulated gradients", kept, pinned=pinned, source=f"{source}, accumulated_grads_in_cpu"))
    return tuple(terms)


def moments(rank: Stage12 | Stage3, numel: int) -> Term:
    """Adam's moments."""
    width = rank.master_width if rank.config.bf16.bf16_optimizer_states else ADAM_WIDTH
    return held("optimizer/moments", [numel * width] * ADAM_STATES, pinned=False, source="ops/adam/cpu_adam.py", numel=numel, width=width)


def stage3_terms(rank: Stage3) -> tuple[Term, ...]:
    """Stage 3 with the optimizer, or also the weights, on the host or on NVMe."""
    if not isinstance(rank.ranks, int):
        return ()
    return (*_weights(rank), *(_optimizer(rank) if rank.offloads else rank.paged()))


def _weights(rank: Stage3) -> list[Term]:
    """Shards of the weights: trainable ones in one pinned buffer, whatever ``pin_memory`` says; on NVMe, a pool of locked buffers and a part."""
    knobs, width = rank.zero.offload_param, rank.width
    if knobs.device == "none":
        return []
    trainable = sum(int(n) for n in rank.shard_numels)
    frozen = [-(-p.numel // rank.ranks) for p in rank.params if not p.trainable]
    in_memory = trainable if knobs.device == "cpu" else min(trainable, knobs.max_in_cpu)
    flat = "zero/stage3.py, _create_param_groups_fp16_flat_cpu_memory"
    terms = [held("weights", [in_memory * width], pinned=True, source=flat, numel=in_memory)]
    if frozen and knobs.device == "cpu":
        terms.append(held("frozen weights", [n * width for n in frozen], pinned=knobs.pin_memory, source="zero/partition_parameters.py, _partition_param"))
    if knobs.device == "nvme":
        pool = knobs.buffer_count * knobs.buffer_size * width
        source = "swap_tensor/partitioned_param_swapper.py, _configure_aio"
        terms.append(Term("host/pinned/buffers for weights", pool, "buffer_count * buffer_size * width", {"width": width}, source))
    return terms


def _optimizer(rank: Stage3) -> list[Term]:
    """Master weights, their gradients and the moments of sub-groups that step on the host; on NVMe, buffers of the largest sub-group."""
    knobs, width = rank.zero.offload_optimizer, rank.master_width
    numels = [int(n) for n in rank.shard_numels]
    groups = [sum(numels[i] for i in group) for group in sub_groups(numels, size=rank.zero.sub_group_size)][rank.num_on_card :]
    shards = held("gradient shards", [sum(numels) * rank.gradient_width], pinned=knobs.pin_memory, source="zero/stage3.py, grad_partitions_flat_buffer")
    if knobs.device == "nvme":
        pool = knobs.buffer_count * max(groups, default=0) * width
        source = "swap_tensor/optimizer_utils.py, SwapBufferManager"
        return [shards, Term("host/pinned/buffers for optimizer states", pool, "buffer_count * largest sub-group * width", {"width": width}, source)]
    return [
        shards,
        held("master weights", [n * width for n in groups], pinned=False, source="zero/stage3.py, _create_fp32_partitions"),
        held("gradients", [n * width for n in groups], pinned=knobs.pin_memory, source="zero/stage3.py, initialize_optimizer_states"),
        moments(rank, sum(groups)),
    ]
