"""Pipeline schedules: in which order a stage runs its micro-batches, and how many of them are in flight at each turn.

Sources: GPipe (Huang et al. 2019); 1F1B and interleaving (Narayanan et al. 2021, 2104.04473, section 2.2) as Megatron-core runs them
(megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches and get_schedule_table); zero bubble (Qi et al. 2024,
2401.10241: ZB1P of section 2, and ZB-V of section 6) as torch/distributed/pipelining/schedules.py runs it, whose stage_backward_input retains the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "zbv"]


class Turn(NamedTuple):
    """One forward or backward pass of one model chunk, with what is there when it begins.

    Attributes:
        forward: whether it is a forward pass.
        chunk: which of the stage's model chunks.
        in_flight: for each chunk, how many micro-batches have run forward and not back; in a backward pass its own is one of them.
        accumulated: whether each chunk has run back before, so that gradients are there.
        first: whether it is the chunk's first backward pass of the step.
        waiting: for each chunk, how many of those in flight have their gradients of inputs, but not those of weights; the one that runs back
            is among them. Empty where a schedule makes both at once.
    """

    forward: bool
    chunk: int
    in_flight: tuple[int, ...]
    accumulated: bool = False
    first: bool = False
    waiting: tuple[int, ...] = ()


def num_warmup(schedule: Schedule, *, stages: int, stage: int, chunks: int, micro_batches: int) -> int:
    """Forward passes that a stage runs before its first backward pass, less the one just before it.

    Args:
        schedule: which.
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
    later = stages - stage - 1
    return min(total, later if chunks == 1 else (1 if schedule == "zero_bubble" else 2) * later + (chunks - 1) * stages)


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
    if schedule == "zbv":
        return tuple(dict.fromkeys(_passes(_zbv(stages=stages, stage=stage, micro_batches=micro_batches), 2)))
    forwards = order(stages=stages, chunks=chunks, micro_batches=micro_batches, breadth_first=schedule == "gpipe")
    warmup = num_warmup(schedule, stages=stages, stage=stage, chunks=chunks, micro_batches=micro_batches)
    if schedule == "zero_bubble":
        return tuple(dict.fromkeys(_passes(_zb1p(forwards, warmup, chunks, lag=stage), chunks)))
    return tuple(dict.fromkeys(_turns(forwards, warmup, chunks)))


Pass = tuple[Literal["forward", "inputs", "weights"], int]
"""A pass, which is forward or makes gradients of inputs or of weights, and the chunk."""


def _zb1p(forwards: list[int], warmup: int, chunks: int, *, lag: int) -> Iterator[Pass]:
    """One forward, one backward, with gradients of weights so many passes behind those of inputs (ScheduleInterleavedZeroBubble)."""
    ahead = 0
    for k, back in enumerate(forwards):
        while ahead < len(forwards) and ahead <= warmup + k:
            yield "forward", forwards[ahead]
            ahead += 1
        yield "inputs", chunks - 1 - back
        if k >= lag:
            yield "weights", chunks - 1 - forwards[k - lag]
    for back in forwards[max(len(forwards) - lag, 0) :]:
        yield "weights", chunks - 1 - back


def _zbv(*, stages: int, stage: int, micro_batches: int) -> Iterator[Pass]:
    """Two chunks, the second of which runs through the stages in reverse (ScheduleZBVZeroBubble); passes past the last micro-batch are left out."""
    enough = max(2 * stages - 1, micro_batches)
    begun = dict.fromkeys((("forward", 0), ("forward", 1), ("inputs", 0), ("inputs", 1), ("weights", 0), ("weights", 1)), 0)
    for one in _zbv_passes(begun, enough=enough, stages=stages, stage=stage):
        begun[one] += 1
        if begun[one] <= micro_batches:
            yield one  # type: ignore[misc]


def _zbv_passes(begun: dict[tuple[str, int], int], *, enough: int, stages: int, stage: int) -> Iterator[tuple[str, int]]:
    back = [[("inputs", chunk), ("weights", chunk)] for chunk in (0, 1)]
    yield from [("forward", 0)] * (2 * (stages - stage) - 1)
    for _ in range(stage):
        yield from (("forward", 1), ("forward", 0))
    for _ in range(stages - stage):
        yield from (("forward", 1), *back[1])
    while begun["forward", 1] < begun["forward", 0] or begun["forward", 0] < enough:
        if begun["forward", 0] < enough:
            yield "forward", 0
        yield from (*back[0], ("forward", 1), *back[1])
    for _ in range(stage):
        yield from (("inputs", 0), ("inputs", 1))
    for _ in range(stages - stage):
        yield from back[0]
    for chunk in (1, 0):
        while begun["weights", chunk] < begun["inputs", chunk]:
            yield "weights", chunk


def _passes(found: Iterator[Pass], chunks: int) -> Iterator[Turn]:
    """The turns of passes: a micro-batch is in flight until its gradients of weights are made, since its graph is retained."""
    flying, waiting, done, ran = [0] * chunks, [0] * chunks, [False] * chunks, [False] * chunks
    for kind, chunk in found:
        if kind == "forward":
            yield Turn(forward=True, chunk=chunk, in_flight=tuple(flying), accumulated=all(done), waiting=tuple(waiting))
            flying[chunk] += 1
        elif kind == "inputs":
            waiting[chunk] += 1
            yield Turn(forward=False, chunk=chunk, in_flight=tuple(flying), accumulated=all(done), first=not ran[chunk], waiting=tuple(waiting))
            ran[chunk] = True
        else:
            flying[chunk] -= 1
            waiting[chunk] -= 1
            done[chunk] = True


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
        counts = turn.in_flight + turn.waiting
        return any(t.accumulated >= turn.accumulated and all(a >= b for a, b in zip(t.in_flight + t.waiting, counts, strict=True)) for t in able)

    return all(map(met, its))


def max_in_flight(schedule: Schedule, *, stages: int, stage: int, chunks: int, micro_batches: int) -> int:
    """The most passes of model chunks in flight on a stage at one time.

    >>> [max_in_flight("1f1b", stages=4, stage=i, chunks=1, micro_batches=2) for i in range(4)]
    [2, 2, 2, 1]
    >>> max_in_flight("interleaved", stages=8, stage=0, chunks=3, micro_batches=64)  # 24 * (1 + 7 / 24)
    31
    """
    return max(sum(turn.in_flight) for turn in turns(schedule, stages=stages, stage=stage, chunks=chunks, micro_batches=micro_batches) if not turn.forward)
