"""A toy model's step under an engine: bytes alive by instant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memcalc.engine import step
from memcalc.engine.estimate import walk_rank
from memcalc.engine.walk import Snapshot, Walk, Walked
from memcalc.specs.job import Job
from memcalc.specs.model import ModelSpec
from tests.engine import toy

INSTANTS = ("start", "forward_peak", "forward_end", "backward_peak", "optimizer_step")


def job(model: ModelSpec | None = None, *, engine: str, dp: int = 4, sharding: dict[str, Any] | None = None, **keys: Any) -> Job:
    """A job on `dp` ranks."""
    return toy.job(model or toy.llama(), sharding={"engine": engine, "dp": dp, **(sharding or {})}, **keys)


def walked(model: ModelSpec | None = None, **keys: Any) -> Walked:
    """Its walk."""
    return walk_rank(job(model, **keys))


def totals(model: ModelSpec | None = None, **keys: Any) -> dict[str, int]:
    """Bytes alive at each instant."""
    found = walked(model, **keys).walk.instants
    return {name: found[name].total for name in INSTANTS}


def paths(model: ModelSpec | None = None, **keys: Any) -> dict[str, Snapshot]:
    """Each instant with its bytes by path."""
    return walked(model, **keys).walk.instants


def states(model: ModelSpec | None = None, **keys: Any) -> int:
    """Weights and moments at the start."""
    at_start = paths(model, **keys)["start"].by_path
    return sum(n for path, n in at_start.items() if path.startswith(("weights/", "optimizer/moments")))


def arrays_agree(asked: Job, *, batch: list[int], seq: list[int], dp: list[int]) -> bool:
    """Whether one walk over arrays gives what each of its elements gives alone."""
    import numpy as np

    at_once = walk_rank(replace(asked, micro_batch=np.array(batch), seq_len=np.array(seq), mesh=replace(asked.mesh, dp=np.array(dp))), detailed=False).walk
    for i, (b, s, n) in enumerate(zip(batch, seq, dp, strict=True)):
        alone = walk_rank(replace(asked, micro_batch=b, seq_len=s, mesh=replace(asked.mesh, dp=n))).walk
        for name in INSTANTS:
            if np.broadcast_to(at_once.instants[name].total, (len(dp),))[i] != alone.instants[name].total:
                return False
    return True


def at_initialize(model: ModelSpec | None = None, **keys: Any) -> int:
    """The most alive while the engine is constructed."""
    walk = Walk()
    step.initialize(walk, walked(model, **keys).strategy)
    total: int = walk.instants["initialize"].total
    return total
