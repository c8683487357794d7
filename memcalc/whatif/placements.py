"""How to place a model that serves on cards: tensor parallelism, stages, replicas; the fewest cards, and the most sequences. Answers as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from memcalc.engine.resolve import SERVERS, resolve
from memcalc.engine.serving import serve
from memcalc.errors import InputError
from memcalc.models.read import read_model
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.fit import needs, room_for

DEGREES, STAGES = (1, 2, 4, 8, 16), (1, 2, 4, 8)
MOST_CARDS = 32
"""No more cards for one replica are looked at where none are named."""
NODE = 8
"""Tensor parallelism beyond a node is tried only where nothing within does."""
MAX_BATCH = 1 << 16
SHARING = {"vllm": "enable_expert_parallel", "sglang": "enable_dp_attention"}
"""What makes data-parallel ranks share experts."""


class Placement(NamedTuple):
    """One way.

    Attributes:
        tp, pp, dp, replicas: degrees; dp is of ranks that share experts and have sequences of their own.
        cards: of one replica.
        weights_bytes, kv_cache_bytes: on the most loaded card; of transformers' code the cache of one sequence.
        per_replica: sequences of the length asked for that one replica holds at once.
        longest: tokens of the longest sequence of which it holds one; 0: unknown.
        starts: the engine does, and one sequence of the length fits.
        why: in its words, where it does not.
        run: in full.
    """

    tp: int
    pp: int
    dp: int
    replicas: int
    cards: int
    weights_bytes: int
    kv_cache_bytes: int
    per_replica: int
    longest: int
    starts: bool
    why: str
    run: Run

    @property
    def sequences(self) -> int:
        """Of all replicas."""
        return self.replicas * self.per_replica


class Placements(NamedTuple):
    """The answer.

    Attributes:
        model, gpu, gpus: what is placed where; None: as few cards as do.
        seq_len: tokens of a sequence.
        sequences: that must be held at once, over all replicas.
        every: ways, those that suffice first, by cards of a replica.
        kv_heads: of the model: more ranks than that hold the same heads.
        reasons: why ways cannot be, and how often.
    """

    model: str
    gpu: str
    gpus: int | None
    seq_len: int
    sequences: int
    every: tuple[Placement, ...]
    kv_heads: int
    reasons: dict[str, int]

    def suffices(self, one: Placement) -> bool:
        """Whether it holds as many sequences as must be."""
        return one.starts and one.sequences >= self.sequences

    @property
    def fewest(self) -> Placement | None:
        """With the fewest cards in one replica; of those the one with the fewest stages, and with one tensor-parallel group."""
        able = [one for one in self.every if self.suffices(one)]
        return min(able, key=lambda one: (one.cards, one.pp, one.dp), default=None)

    @property
    def most(self) -> Placement | None:
        """With the most sequences on all cards."""
        able = [one for one in self.every if self.suffices(one)]
        return max(able, key=lambda one: (one.sequences, -one.cards), default=None)


def place(run: Run, *, sequences: int = 1) -> Placements:
    """The ways of a run that serves.

    Args:
        run: of task inference, with a card; degrees that it gives are kept.
        sequences: that must be held at once.

    Raises:
        InputError: no card, or no way at all.
    """
    room = room_for(run)
    gpus, reasons, found = run.hardware.gpus, dict[str, int](), list[Placement]()
    for keys in (*_degrees(run, gpus), *_shared(run, gpus)):
        cards = keys["gpus"]
        try:
            job = resolve(read_run(run, **keys))
            one = _placed(job, room.room_bytes)
            found.append(one._replace(dp=keys["dp"], cards=cards, replicas=1 if gpus is None else gpus // cards))
        except InputError as error:
            reasons[str(error)] = reasons.get(str(error), 0) + 1
    if not found:
        raise InputError(next(iter(reasons), f"{gpus} cards cannot be divided as asked"), where="--gpus")
    job = resolve(found[0].run)
    answer = Placements(job.model.name, room.name, gpus, job.seq_len, sequences, (), job.model.num_kv_heads, reasons)
    ordered = sorted(found, key=lambda one: (not answer.suffices(one), one.cards, one.pp, one.dp))
    return answer._replace(every=tuple(ordered))


# ---------------------------------------------------------------------- inside
def _degrees(run: Run, gpus: int | None) -> Iterator[dict[str, Any]]:
    """Keys of those that divide the cards, or of all up to some number; what is given is kept."""
    given = run.sharding.model_fields_set
    for pp in (run.sharding.pp,) if "pp" in given else STAGES:
        for tp in (run.sharding.tp,) if "tp" in given else DEGREES:
            too_wide = tp > NODE and "tp" not in given
            if not too_wide and _divides(tp * pp, gpus):
                yield {"tp": tp, "pp": pp, "dp": 1, "gpus": tp * pp}


def _shared(run: Run, gpus: int | None) -> Iterator[dict[str, Any]]:
    """Keys of ranks that share experts and have sequences of their own: vLLM's data parallelism with whole experts, SGLang's attention by sequence."""
    if run.code not in SHARING or {"tp", "pp"} & run.sharding.model_fields_set or not any(weight.is_expert for _, weight, _ in read_model(run.model).weights()):
        return
    for dp in DEGREES[1:]:
        for tp in DEGREES if run.code == "vllm" else (1,):
            if tp <= NODE and _divides(tp * dp, gpus):
                yield {"tp": tp if run.code == "vllm" else dp, "pp": 1, "dp": dp, "gpus": tp * dp, SHARING[run.code]: True}


def _divides(cards: int, gpus: int | None) -> bool:
    return cards <= MOST_CARDS if gpus is None else gpus % cards == 0


def _placed(job: Job, room_bytes: int) -> Placement:
    return _served(job) if job.run.code in SERVERS else _walked(job, room_bytes)


def _served(job: Job) -> Placement:
    answer = serve(job)
    serving, verdict = answer.serving, answer.verdict
    assert serving is not None
    weights, starts = max(rank.instants[0].allocated_bytes for rank in answer.ranks), verdict is not None and verdict.fits
    engines = job.mesh.dp if job.run.serving.enable_expert_parallel else 1
    held = engines * int(serving.max_concurrency) if serving.sequence_bytes else 0
    why = "" if starts or verdict is None else verdict.refusal or "it needs more than the card has"
    return Placement(job.mesh.tp, job.mesh.pp, 1, 1, 1, weights, serving.kv_cache_bytes, held, serving.largest_model_len, starts and held > 0, why, job.run)


def _walked(job: Job, room_bytes: int) -> Placement:
    """Of transformers' code: the largest batch whose least need is within the card."""
    import numpy as np

    from memcalc.engine.estimate import walk_ranks
    from memcalc.whatif.fit import largest

    ranks = walk_ranks(replace(job, micro_batch=1))
    weights = max(int(one.walk.instants["load"].total) for one in ranks)
    cache = max(sum(n for path, n in one.walk.instants["decode"].by_path.items() if path.startswith("kv_cache")) for one in ranks)
    batch = largest(lambda values: needs(job, values, np.full_like(values, job.seq_len)) <= room_bytes, cap=MAX_BATCH)
    why = "" if batch else "one sequence needs more than the card has"
    return Placement(job.mesh.tp, job.mesh.pp, 1, 1, 1, weights, cache, batch, 0, batch > 0, why, job.run)
