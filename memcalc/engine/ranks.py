"""Which kinds of rank there are: the layers of each pipeline stage, and who holds the two ends.

Source: Megatron-core, megatron/core/transformer/transformer_block.py, get_num_layers_to_build, and pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from memcalc.dataclass import dataclass
from memcalc.errors import InputError, ShardingError
from memcalc.formulas.experts import other_share, share
from memcalc.specs.job import Job, Mesh
from memcalc.specs.model import Block, ModelSpec
from memcalc.specs.run import ShardingSpec

LAYOUT = "sharding.pipeline_model_parallel_layout"
REPEATED = r"\(([^()]*)\)\*(\d{1,6})|(\w)\*(\d{1,6})"
MAX_LAYOUT = 10_000
"""Letters of the longest layout."""

Counts = tuple[tuple[int, ...], ...]
"""Layers by stage and by model chunk of the stage."""


@dataclass(frozen=True)
class Stage:
    """What one pipeline stage runs.

    Attributes:
        index: which, from 0.
        chunks: the blocks of each of its model chunks, in the order of the forward pass.
        is_first, is_last: whether it holds the embedding, and the head.
    """

    index: int
    chunks: tuple[tuple[Block, ...], ...]
    is_first: bool
    is_last: bool


def num_micro_batches(job: Job) -> int:
    """Micro-batches of one step: ``grad_accum``; where that is left open, enough to keep every stage busy."""
    if "grad_accum" in job.run.model_fields_set or job.run.grad_accum > 1:
        return job.run.grad_accum
    return 2 * job.mesh.pp * job.mesh.vpp


def stages_of(job: Job) -> tuple[Stage, ...]:
    """The stages of a job's pipeline, each with its blocks; one table tied to both ends is held by both.

    The second chunks of ZB-V run through the stages in reverse, so that the first stage holds both ends.

    Raises:
        ShardingError: the layers cannot be spread over so many stages and chunks.
    """
    stages, chunks = job.mesh.pp, job.mesh.vpp
    counts, _ = layers_of(job.run.sharding, job.model, job.mesh)
    blocks = blocks_of(job)
    turns_back = job.run.sharding.pp_schedule == "zbv"
    places = [(range(stages - 1, -1, -1) if turns_back and c % 2 else range(stages)) for c in range(chunks)]
    if stages > 1:
        from memcalc.models.untie import untied

        blocks = untied(blocks)
    pieces = cut(blocks, [counts[i][c] for c in range(chunks) for i in places[c]])
    last = 0 if turns_back else stages - 1
    return tuple(Stage(i, tuple(pieces[c * stages + places[c].index(i)] for c in range(chunks)), i == 0, i == last) for i in range(stages))


def expert_kinds(job: Job) -> list[tuple[dict[str, int], Any, Job]]:
    """The kinds of rank that differ in how many tokens their experts get: coordinates, how many there are, and the job as it is for them.

    All are alike unless one of each expert-parallel group is said to be busier: that one is rank 0, and the others share the rest.

    Raises:
        ShardingError: one rank cannot be so busy.
    """
    imbalance, ep = job.run.sharding.expert_imbalance, job.mesh.ep
    ranks = job.mesh.world // job.mesh.pp
    if imbalance == 1 or (isinstance(ep, int) and ep == 1):
        return [({}, ranks, job)]
    if imbalance > ep:
        raise ShardingError(f"{imbalance:g} times the even share is more than all tokens; with ep {ep} it is at most {ep}", where="sharding.expert_imbalance")
    busiest = share(imbalance)
    hot = ({"ep": 0}, ranks // ep, replace(job, expert_share=busiest))
    cold = ({"ep": 1}, ranks - ranks // ep, replace(job, expert_share=other_share(busiest, ep=ep)))
    return [hot, cold]


def layers_of(asked: ShardingSpec, model: ModelSpec, mesh: Mesh) -> tuple[Counts, str]:
    """Layers by stage and chunk, as asked or spread, and a sentence on what was assumed (empty where nothing was).

    Raises:
        ShardingError: there is no such split; the message names the nearest there is.
    """
    total = num_layers(model)
    if asked.pipeline_model_parallel_layout is not None:
        return from_layout(asked.pipeline_model_parallel_layout, total, stages=mesh.pp, chunks=mesh.vpp), ""
    first, last = asked.decoder_first_pipeline_num_layers, asked.decoder_last_pipeline_num_layers
    if first is not None or last is not None:
        return uneven(total, stages=mesh.pp, chunks=mesh.vpp, first=first, last=last), ""
    embedding, loss = asked.account_for_embedding_in_pipeline_split, asked.account_for_loss_in_pipeline_split
    return even(model.name, total, stages=mesh.pp, chunks=mesh.vpp, embedding=embedding, loss=loss)


def num_layers(model: ModelSpec) -> int:
    """Layers that a pipeline can cut between."""
    return sum(block.repeat for block in model.blocks if block.role == "layer")


def even(name: str, total: int, *, stages: int, chunks: int, embedding: bool = False, loss: bool = False) -> tuple[Counts, str]:
    """As many layers on every chunk as on every other; embedding and loss may stand for a layer each.

    Where the layers do not divide, the two ends count as layers if that helps; otherwise the rest goes to the stages between, the
    later ones first, since they hold fewer micro-batches.
    """
    where = "sharding.pp" if chunks == 1 else "sharding.vpp"
    pieces = stages * chunks
    if total < stages:
        raise ShardingError(f"{name} has {total} layers, too few for pp {stages}; the most stages it can have is {total}", where="sharding.pp")
    ends = embedding + loss
    if not ends and total % pieces and (total + 2) % pieces == 0:
        counts = _even(total, pieces, embedding=True, loss=True)
        return _by_stage(counts, stages), f"{total} layers over {pieces} pipeline pieces: embedding and loss stand for a layer each"
    if (total + ends) % pieces == 0:
        return _by_stage(_even(total, pieces, embedding=embedding, loss=loss), stages), ""
    if chunks > 1 or ends:
        able = [v for v in range(1, total // stages + 1) if (total + ends) % (stages * v) == 0 or (not ends and (total + 2) % (stages * v) == 0)]
        hint = f"vpp can be {', '.join(map(str, able))}" if able else f"no vpp divides {total} layers over pp {stages}"
        extra = f" and {ends} ends" if ends else ""
        raise ShardingError(f"{total} layers{extra} do not divide over pp {stages} * vpp {chunks} = {pieces} pieces; {hint}", where=where)
    share, rest = divmod(total, stages)
    fill = [*range(stages - 2, 0, -1), stages - 1, 0][:rest]
    spread = [share + (i in fill) for i in range(stages)]
    note = f"{total} layers over pp {stages} do not divide: stages hold {', '.join(map(str, spread))} (say otherwise with pipeline_model_parallel_layout)"
    return _by_stage(spread, stages), note


def _even(total: int, pieces: int, *, embedding: bool, loss: bool) -> list[int]:
    counts = [(total + embedding + loss) // pieces] * pieces
    counts[0] -= embedding
    counts[-1] -= loss
    return counts


def _by_stage(counts: Sequence[int], stages: int) -> Counts:
    return tuple(tuple(counts[i::stages]) for i in range(stages))


def uneven(total: int, *, stages: int, chunks: int, first: int | None, last: int | None) -> Counts:
    """A first and a last stage with layers of their own number; the stages between share the rest.

    >>> uneven(8, stages=4, chunks=1, first=1, last=3)
    ((1,), (2,), (2,), (3,))
    """
    ends = [n for n in (first, last) if n is not None]
    between, rest = stages - len(ends), total - sum(ends)
    where = "sharding.decoder_first_pipeline_num_layers" if first is not None else "sharding.decoder_last_pipeline_num_layers"
    if stages < 2 or between < 0:
        raise ShardingError("a first or last stage of its own size needs pp of at least 2", where=where)
    if rest < between or (rest % between if between else rest):
        raise ShardingError(f"{rest} layers are left for the {between} other stages; they must divide over them, with at least one each", where=where)
    counts = [rest // between if between else 0] * stages
    if first is not None:
        counts[0] = first
    if last is not None:
        counts[-1] = last
    odd = next((n for n in counts if n % chunks), None)
    if odd is not None:
        raise ShardingError(f"vpp {chunks} does not divide a stage of {odd} layers; it can be {', '.join(map(str, _divisors(counts)))}", where="sharding.vpp")
    return tuple((n // chunks,) * chunks for n in counts)


def _divisors(counts: Iterable[int]) -> list[int]:
    found = sorted(set(counts))
    return [d for d in range(1, found[0] + 1) if not any(n % d for n in found)]


def from_layout(layout: str, total: int, *, stages: int, chunks: int) -> Counts:
    """Megatron's layout string: ``|`` between pieces, ``t`` a layer, ``E`` the embedding, ``L`` the loss, ``m`` a prediction layer, ``*n`` a repetition.

    >>> from_layout("Et*3|(tt|)*2L", 7, stages=4, chunks=1)
    ((3,), (2,), (2,), (0,))
    """
    pieces = pieces_of(layout)
    if len(pieces) != stages * chunks:
        raise ShardingError(f"{layout!r} has {len(pieces)} pieces, not pp {stages} * vpp {chunks} = {stages * chunks}", where=LAYOUT)
    counts = [piece.count("t") for piece in pieces]
    if sum(counts) != total:
        raise ShardingError(f"{layout!r} has {sum(counts)} layers; the model has {total}", where=LAYOUT)
    return _by_stage(counts, stages)


def pieces_of(layout: str) -> list[str]:
    """What each stage's model chunks hold, in the order of the layers.

    Raises:
        InputError: it is no layout, or longer than any model's.
    """
    text, before = layout.replace(",", "").replace(" ", ""), ""
    while text != before and len(text) <= MAX_LAYOUT:
        before = text
        text = re.sub(REPEATED, lambda m: (m[1] or m[3] or "") * min(int(m[2] or m[4]), MAX_LAYOUT), text, count=1)
    if set(text) - set("EtmL|") or len(text) > MAX_LAYOUT:
        raise InputError(f"{layout[:60]!r} is not a pipeline layout; it holds E, t, m, L, |, parentheses and *n", where=LAYOUT)
    return text.split("|")


def blocks_of(job: Job) -> tuple[Block, ...]:
    """The model's blocks as the code of the job builds them."""
    if job.run.code != "megatron":
        return job.model.blocks
    from memcalc.engine.megatron_model import build

    return build(job)


def cut(blocks: tuple[Block, ...], counts: Sequence[int]) -> list[tuple[Block, ...]]:
    """Blocks cut into pieces of so many layers; what stands before the first layer joins the first piece, what follows the last the last one."""
    pieces: list[list[Block]] = [[] for _ in counts]
    place, room = 0, counts[0]
    for block in blocks:
        if block.role != "layer":
            end = len(counts) - 1
            pieces[0 if not any(b.role == "layer" for piece in pieces for b in piece) else end].append(block)
            continue
        left = block.repeat
        while left:
            while not room:
                place += 1
                room = counts[place]
            taken = min(left, room)
            pieces[place].append(replace(block, repeat=taken))
            left, room = left - taken, room - taken
    return [tuple(piece) for piece in pieces]
