"""What an engine's rules give for one rank."""

from __future__ import annotations

from typing import NamedTuple

from memcalc.engine.cache import Policy
from memcalc.engine.result import Term
from memcalc.engine.serving.groups import Groups
from memcalc.engine.serving.rank import attention_tp
from memcalc.specs.gpus import Gpu, find_gpu
from memcalc.specs.job import Job
from memcalc.units import DTYPE_BYTES


class Budget(NamedTuple):
    """One rank's budget.

    Attributes:
        requested_bytes: what the engine takes of the card.
        weights: as it holds them once they are loaded.
        activations: the most beside weights and cache while it runs.
        others: what it holds all the time: graphs.
        device: what stands outside the allocator.
        kv_cache_bytes: what is left for the cache; below 0 where the rest does not fit.
        policy: how the cache is stored.
        refusal: why the engine would not get so far.
        assumptions, notes: in words.
        host: what it holds there.
        groups: how the cache is divided where layers are not alike; None: it is not.
        room_bytes: what its cache could have, for an engine that takes no share of the card; None: what it has.
    """

    requested_bytes: int
    weights: tuple[Term, ...]
    activations: tuple[Term, ...]
    others: tuple[Term, ...]
    device: tuple[Term, ...]
    kv_cache_bytes: int
    policy: Policy
    refusal: str = ""
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    host: tuple[Term, ...] = ()
    room_bytes: int | None = None
    groups: Groups | None = None


def card_of(job: Job) -> Gpu:
    """The card that is served from."""
    assert job.run.hardware.gpu is not None
    return find_gpu(job.run.hardware.gpu)


def policy_of(job: Job, *, block: int, step_tokens: int | None) -> Policy:
    """How the cache is stored, by the keys that all engines have."""
    asked = job.run.serving.kv_cache_dtype
    width = DTYPE_BYTES[job.run.dtype]
    dtype = job.run.dtype if asked == "auto" else asked
    return Policy(dtype=dtype, tp=attention_tp(job), block=job.run.serving.block_size or block, step_tokens=step_tokens, width=width, state_width=width)
