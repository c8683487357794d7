"""The card that all share: a phase is what the roles hold between their passes, and the pass of the one that works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import lcm
from typing import Any

from memcalc.engine.result import Term
from memcalc.engine.rlhf.player import Player, max_of, named, plus, there
from memcalc.engine.walk import Snapshot, Walk
from memcalc.specs.job import Job, Role

ACTOR = "actor"


def kinds_of(job: Job) -> Iterator[tuple[int, int]]:
    """The kinds of rank that differ in the stages that they hold, each with how many there are: pipelines of several depths are laid over the same cards.

    Stages are the outermost part of a rank's number, so that of a pipeline of 4 and one of 2 the first two stages meet the first
    (megatron/core/parallel_state.py, ``initialize_model_parallel``).
    """
    assert job.cast is not None
    count = lcm(*(role.job.mesh.pp for role in (job.cast.actor, *job.cast.others) if role.on_card))
    return ((which, count) for which in range(count))


class Stage:
    """All who are on the card.

    Args:
        job: the actor's, with its cast.
        sequences: that go through a model for each of the micro-batch.
        detailed: see `Walk`.
        kind: of rank: which, and how many there are (see `kinds_of`).

    Attributes:
        players: by role, those on the card; the actor first.
        walk: takes the phases down, as instants.
    """

    def __init__(self, job: Job, *, sequences: int, detailed: bool, kind: tuple[int, int] = (0, 1)) -> None:
        assert job.cast is not None
        self.job, self.cast, self.detailed, self.kind = job, job.cast, detailed, kind
        self.walk = Walk(detailed=detailed)
        self.sequences = sequences
        self.players = {role.name: self._player(role) for role in (self.cast.actor, *self.cast.others) if role.on_card}

    def _player(self, role: Role) -> Player:
        which, of = self.kind
        stage = which * role.job.mesh.pp // of
        packed = self.cast.run.rl.max_token_len
        if packed is not None:  # sequences are laid end to end up to a budget of tokens
            return Player(role, micro_batch=1, seq_len=packed, detailed=self.detailed, stage=stage)
        own = "micro_batch" in role.job.run.model_fields_set and role.name != ACTOR
        batch: Any = role.job.micro_batch if own else self.job.micro_batch
        return Player(role, micro_batch=batch * self.sequences, seq_len=self.job.seq_len, detailed=self.detailed, stage=stage)

    @property
    def rank(self) -> dict[str, int]:
        """Its coordinates: the stage of the actor's pipeline."""
        return {"pp": self.actor.stage}

    @property
    def num_ranks(self) -> Any:
        """How many there are of its kind."""
        return self.job.mesh.world // self.kind[1]

    @property
    def actor(self) -> Player:
        """The model that learns."""
        return self.players[ACTOR]

    def others(self, *working: str) -> Snapshot:
        """What all but those who work hold; where one works with the actor's weights, these are there."""
        needs_actor = any(self.players[name].role.shares for name in working)
        found = []
        for name, player in self.players.items():
            if name not in working:
                found.append(named(name, player.at_rest if name == ACTOR and needs_actor else player.idle))
        return plus(*found)

    def phase(self, name: str, working: Mapping[str, Snapshot], *beside: Snapshot) -> None:
        """Take down the most of a phase.

        Args:
            name: of the instant.
            working: what the roles that work hold at most, by role.
            beside: what else is there.
        """
        shots = [named(role, shot) for role, shot in working.items()]
        total = plus(self.others(*working), *shots, *beside)
        self.walk.instants[name] = Snapshot(total.total, there(total.by_path) if self.detailed else {})

    @property
    def shows_construction(self) -> bool:
        """On request, and where a model comes whole before it is cut, the moments are shown in which all are made."""
        return bool(self.job.run.initialize or any(player.job.loads_whole for player in self.players.values()))

    def load(self, name: str = "load") -> None:
        """The phase ``load``: all are there; where construction is shown, as they come, one after the other."""
        there, most = Snapshot(0, {}), []
        for role, player in self.players.items() if self.shows_construction else ():
            most.append(plus(there, named(role, player.loaded)))
            there = plus(there, named(role, player.idle if role != ACTOR else player.resident))
        found = max_of(*most, plus(*(named(role, player.resident) for role, player in self.players.items())))
        self.walk.instants[name] = Snapshot(found.total, found.by_path if self.detailed else {})

    def explain(self) -> None:
        """Gather the reasons and records of all under their roles' names."""
        for name, player in self.players.items():
            self.walk.reasons |= {f"{name}/{path}": reason for path, reason in player.reasons.items()}
            self.walk.records |= {f"{name}/{path}": records for path, records in player.records.items()}

    def host(self) -> tuple[Term, ...]:
        """What all but the actor's own engine keep in the host's memory."""
        found = []
        for name, player in self.players.items():
            if name != ACTOR:
                found += [replace(term, path=f"host/{name}/{term.path.removeprefix('host/')}") for term in player.host()]
            if player.role.takes_place:
                why = "they stand where the actor's do while it works"
                found.append(Term(f"host/{name}/weights", player.shared_bytes, why, {}, "NeMo-RL, use_reference_model"))
            if player.role.idle and there({name: player.away_bytes}):
                found.append(Term(f"host/{name}/put away between phases", player.away_bytes, "what it holds on the card while it works", {}, "as asked"))
        return tuple(found)


__all__ = ["ACTOR", "Stage", "kinds_of"]
