"""Pipeline schedules: in which order a stage runs its micro-batches, and how many of them are in flight at each turn.

Sources: GPipe (Huang et al. 2019); 1F1B and interleaving (Narayanan et al. 2021, 2104.04473, section 2.2) as Megatron-core runs them
(megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches and get_schedule_table); zero bubble (Qi et al. 2024,
2401.10241, section 2).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]


class Turn(NamedTuple):
    """One forward or backward pass of one model chunk, with what is there when it begins.

    Attributes:
        forward: whether it is a forward pass.
        chunk: which of the stage's model chunks.
        in_flight: for each chunk, how many micro-batches have run forward and not back; in a backward pass its own is one of them.
        accumulated: whether each chunk has run back before, so that gradients are there.
        first: whether it is the chunk's first backward pass of the step.
    """

    forward: bool
    chunk: int
    in_flight: tuple[int, ...]
    accumulated: bool = False
    first: bool = False


def num_warmup(schedule: Schedule, *, stages: int, stage: int, chunks: int, micro_batches: int) -> int:
    """Forward passes that a stage runs before its first backward pass, less the one just before it.

    Args:
        schedule: which; zero bubble delays the gradients of weights, so that every stage holds what the first one does.
        stages, stage: pipeline stages, and which one, from 0.
        chunks: model chunks on the stage.
        micro_batches: of the step.

    >>> [num_warmup("1f1b", stages=4, stage=i, chunks=1, micro_batches=8) for i in range(4)]
    [3, 2, 1, 0]
    >>> [num_warmup("interleaved", stages=4, stage=i, chunks=2, micro_batches=8) for i in range(4)]
    [10, 8, 6, 4]
    """
    total = micro_batches * chunks
    if schedule == "gpipe":
        return total
    if schedule == "zero_bubble":
        stage = 0
    later = stages - stage - 1
    return min(total, later if chunks == 1 else 2 * later + (chunks - 1) * stages)


def order(*, stages: int, chunks: int, micro_batches: int, breadth_first: bool = False) -> list[int]:
    """The chunks of one stage in the order of their forward passes: in groups of as many micro-batches as there are stages.

    >>> order(stages=2, chunks=2, micro_batches=4)
    [0, 0, 1, 1, 0, 0, 1, 1]
    """
    group = micro_batches if breadth_first else stages
    return [chunk for begin in range(0, micro_batches, group) for chunk in range(chunks) for _ in range(begin, min(begin + group, micro_batches))]


@lru_cache(maxsize=1024)
def turns(schedule: Schedule, *, stages: int, stage: int, chunks: int, micro_batches: int) -> tuple[Turn, ...]:
    """The distinct turns of a stage, in the order of their first appearance.

    Steady state repeats itself after one group of micro-batches, so no more than three groups are gone through.
    """
    micro_batches = min(micro_batches, 3 * stages)
    forwards = order(stages=stages, chunks=chunks, micro_batches=micro_batches, breadth_first=schedule == "gpipe")
    warmup = num_warmup(schedule, stages=stages, stage=stage, chunks=chunks, micro_batches=micro_batches)
    return tuple(dict.fromkeys(_turns(forwards, warmup, chunks)))


def _turns(forwards: list[int], warmup: int, chunks: int) -> Iterator[Turn]:
    flying, done = [0] * chunks, [False] * chunks
    ahead = 0
    for back in forwards:
        while ahead < len(forwards) and ahead <= warmup:
            chunk = forwards[ahead]
            yield Turn(forward=True, chunk=chunk, in_flight=tuple(flying), accumulated=all(done))
            flying[chunk] += 1
            ahead += 1
        chunk = chunks - 1 - back
        yield Turn(forward=False, chunk=chunk, in_flight=tuple(flying), accumulated=all(done), first=not done[chunk])
        flying[chunk] -= 1
        done[chunk] = True
        warmup += 1


@lru_cache(maxsize=1024)
def leads(schedule: Schedule, one: int, other: int, *, stages: int, chunks: int, micro_batches: int) -> bool:
    """Whether for each turn of the other stage there is one of the first with as many micro-batches in flight, and gradients where it has them.

    >>> leads("1f1b", 1, 2, stages=4, chunks=1, micro_batches=8), leads("1f1b", 2, 1, stages=4, chunks=1, micro_batches=8)
    (True, False)
    """
    mine, its = (turns(schedule, stages=stages, stage=stage, chunks=chunks, micro_batches=micro_batches) for stage in (one, other))
    best: dict[tuple[bool, int, bool], list[Turn]] = {}
    for turn in mine:
        best.setdefault((turn.forward, turn.chunk, turn.first), []).append(turn)

    def met(turn: Turn) -> bool:
        able = best.get((turn.forward, turn.chunk, turn.first), ())
        return any(t.accumulated >= turn.accumulated and all(a >= b for a, b in zip(t.in_flight, turn.in_flight, strict=True)) for t in able)

    return all(map(met, its))


def max_in_flight(schedule: Schedule, *, stages: int, stage: int, chunks: int, micro_batches: int) -> int:
    """The most passes of model chunks in flight on a stage at one time.

    >>> [max_in_flight("1f1b", stages=4, stage=i, chunks=1, micro_batches=2) for i in range(4)]
    [2, 2, 2, 1]
    >>> max_in_flight("interleaved", stages=8, stage=0, chunks=3, micro_batches=64)  # 24 * (1 + 7 / 24)
    31
    """
    return max(sum(turn.in_flight) for turn in turns(schedule, stages=stages, stage=stage, chunks=chunks, micro_batches=micro_batches) if not turn.forward)
