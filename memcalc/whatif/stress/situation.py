"""What an incident strikes: a run with its instants, and the two ways to strike it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from memcalc.engine.estimate import walk_ranks
from memcalc.engine.resolve import resolve
from memcalc.engine.walk import Snapshot
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.units import DTYPE_BYTES
from memcalc.whatif.fit import Room, plays
from memcalc.whatif.sweep import outside_bytes

NEARLY = 0.85
"""Below this share of the card the caching allocator finds a place for everything: it gives unused segments back."""

INSTANTS = ("start", "forward_peak", "backward_peak", "optimizer_step")
"""Those of a step, which incidents strike."""

Terms = Mapping[str, int]


class Incident(NamedTuple):
    """What happens when it strikes.

    Attributes:
        name: the scenario's, with its variant after a slash.
        title: in words.
        instant: when; empty where it cannot strike this run.
        extra: bytes by term, beyond what is alive then without it.
        peak_bytes: the most that is allocated with it.
        need_bytes: what the card must offer then.
        survives: whether it does; None where it cannot strike this run.
        note: why not, or what to know.
        host_bytes: on the host, beyond what is there.
        source: where the extra bytes are from.
    """

    name: str
    title: str
    instant: str
    extra: Terms
    peak_bytes: int
    need_bytes: int
    survives: bool | None
    note: str = ""
    host_bytes: int = 0
    source: str = ""

    @property
    def extra_bytes(self) -> int:
        """All of them."""
        return sum(self.extra.values())


class Situation:
    """A run, on its card.

    Args:
        run: as asked.
        job: the run, resolved; training.
        room: what it may take.
        longest: tokens of the longest sample that may come.
        samples: sequences of an evaluation.

    Raises:
        InputError: it has no step of its own.
    """

    def __init__(self, run: Run, job: Job, room: Room, *, longest: int, samples: int) -> None:
        self.run, self.job, self.room, self.longest, self.samples = run, job, room, longest, samples
        self.walked = walk_ranks(job)
        self.loaded = max(self.walked, key=lambda one: _most(one.walk.instants)[1])
        self.shots: dict[str, Snapshot] = self.loaded.walk.instants
        if not set(INSTANTS) <= set(self.shots):
            raise InputError(f"incidents strike a step of one model; {run.task} is made of phases", where="task")
        self.outside = outside_bytes(job)

    # ------------------------------------------------------------------ as it is
    @property
    def peak(self) -> tuple[str, int]:
        """Instant and bytes of the peak without any incident."""
        return _most(self.shots)

    @cached_property
    def fits(self) -> bool:
        """Whether the run fits without any incident."""
        return self._fits(self.job, self.peak[1])

    @property
    def width(self) -> int:
        """Bytes of an element of activations."""
        return DTYPE_BYTES[self.job.run.autocast or self.job.run.dtype]

    @property
    def num_trainable(self) -> int:
        """Elements that take a gradient, whole."""
        return int(self.loaded.plan.num_trainable)

    @property
    def shares(self) -> int:
        """Ranks among which optimizer states are cut."""
        mesh, engine = self.job.mesh, self.job.engine
        shared = engine in ("fsdp1", "fsdp2") or (engine in ("deepspeed", "megatron") and self.job.zero > 0)
        return int(mesh.dp_shard * mesh.cp) if shared else 1

    @property
    def shards_weights(self) -> bool:
        """Whether weights are cut, too."""
        return self.job.engine in ("fsdp1", "fsdp2") or self.job.zero == 3

    @property
    def steps_on_host(self) -> bool:
        """Whether the optimizer, with what it steps, is not on the card."""
        return self.job.run.offload.optimizer is not None or (self.job.engine in ("fsdp1", "fsdp2") and self.job.run.offload.params is not None)

    @property
    def ranks_of_node(self) -> int:
        """Ranks that share a host."""
        return min(int(self.job.mesh.world), self.job.run.hardware.gpus_per_node)

    @property
    def largest_gradient(self) -> int:
        """Elements of the largest trained parameter on this rank, before it is cut among data-parallel ranks."""
        return max((int(s.num_params) for s in self.loaded.plan.shards() if s.trainable), default=0)

    # ------------------------------------------------------------------ strikes
    def beside(self, name: str, title: str, instant: str, extra: Terms, *, note: str = "", host_bytes: int = 0, source: str = "") -> Incident:
        """Terms on top of what is alive at an instant of the run."""
        peak = max(int(self.shots[instant].total) + sum(extra.values()), self.peak[1])
        need = peak + self.outside
        return Incident(name, title, instant, extra, peak, need, self.fits and need <= self.room.room_bytes, note, host_bytes, source)

    def instead(
        self, name: str, title: str, keys: Mapping[str, Any], *, more: Terms | None = None, note: str = "", instant: str = "", source: str = ""
    ) -> Incident:
        """Another run in the place of this one, for a step: what it has more at the instant named, or at the one where it has most more.

        Args:
            name, title, note, source: as of the incident.
            keys: what is changed in the run.
            more: terms beside it at that instant.
            instant: which.
        """
        try:
            job = resolve(read_run(self.run, **keys))
            walked = walk_ranks(job)
        except InputError as error:
            return self.spared(name, title, error.message)
        loaded = max(walked, key=lambda one: _most(one.walk.instants)[1])
        shots = loaded.walk.instants
        when = instant if instant in shots else max(shots, key=lambda at: int(shots[at].total) - int(self._before(at).total))
        extra = {**(more or {}), **more_of(shots[when].by_path, self._before(when).by_path)}
        total = max(_most(shots)[1], self.peak[1], int(shots[when].total) + sum((more or {}).values()))
        survives = self.fits and self._fits(job, total)
        return Incident(name, title, when, extra, total, total + outside_bytes(job), survives, note, 0, source)

    def spared(self, name: str, title: str, why: str) -> Incident:
        """It cannot strike this run."""
        return Incident(name, title, "", {}, self.peak[1], self.peak[1] + self.outside, None, why)

    def nothing(self, name: str, title: str, instant: str, note: str) -> Incident:
        """It strikes and takes nothing."""
        return self.beside(name, title, instant, {}, note=note)

    # ------------------------------------------------------------------ inside
    def _before(self, instant: str) -> Snapshot:
        """What is alive then without the incident: between steps, where the run has no such instant."""
        return self.shots.get(instant, self.shots["start"])

    def _fits(self, job: Job, peak_bytes: int) -> bool:
        need = peak_bytes + outside_bytes(job)
        room = self.room.room_bytes
        return need <= room and (need < NEARLY * room or plays(job, room))


def _most(shots: Mapping[str, Snapshot]) -> tuple[str, int]:
    name = max(shots, key=lambda one: shots[one].total)
    return name, int(shots[name].total)


def more_of(now: Terms, before: Terms) -> dict[str, int]:
    """What there is more of, and what there is less of, by path; the largest first."""
    found = {path: now.get(path, 0) - before.get(path, 0) for path in (*now, *before)}
    return {path: found[path] for path in sorted(found, key=lambda p: -abs(found[p])) if found[path]}


__all__ = ["Incident", "Situation", "Terms", "more_of"]
