"""Tasks that learn from their own answers: a rollout, what models make of it, and updates; each phase is one instant."""

from __future__ import annotations

from typing import Any

from memcalc.code.objective import Objective
from memcalc.engine.plan import Plan
from memcalc.engine.result import Term
from memcalc.engine.rlhf.cast import prompt_of
from memcalc.engine.rlhf.player import Player, less, max_of, plus
from memcalc.engine.rlhf.presets import habits_of
from memcalc.engine.rlhf.server import Server
from memcalc.engine.rlhf.stage import ACTOR, Stage
from memcalc.engine.strategies import Strategy
from memcalc.engine.walk import Reason, Snapshot, Walk, Walked
from memcalc.formulas import preference
from memcalc.specs.job import Job
from memcalc.specs.model import Weight
from memcalc.tape.span import minimum
from memcalc.units import MiB

NOTHING = Snapshot(0, {})


def walk(job: Job, *, detailed: bool, kind: tuple[int, int]) -> Walked:
    """All phases of one iteration on one kind of rank, in their order."""
    phases = _Phases(job, detailed=detailed, kind=kind)
    stage = phases.stage
    phases.load()
    phases.rollout()
    phases.scores()
    plan, strategy = phases.updates()
    phases.sync()
    stage.explain()
    others = plus(stage.others(ACTOR), phases.asleep, phases.experience).total
    return Walked(stage.rank, stage.num_ranks, stage.walk, plan, strategy, others, (*stage.host(), *phases.host()))


class _Phases:
    """One iteration.

    Attributes:
        stage: the card.
        server: what generates, where that is not the actor and stands on the same card.
        sequences: of a rollout, on one card.
        experience: what the rollout has left on the card.
    """

    def __init__(self, job: Job, *, detailed: bool, kind: tuple[int, int]) -> None:
        assert job.cast is not None
        self.job, self.cast, self.run = job, job.cast, job.cast.run
        self.stage = Stage(job, sequences=1, detailed=detailed, kind=kind)
        self.habits = habits_of(self.run)
        self.sequences: Any = self.cast.sequences or job.micro_batch * job.run.grad_accum
        self.prompt: Any = prompt_of(self.run, job.seq_len)
        self.answer: Any = job.seq_len - self.prompt
        here = self.cast.server is not None and self.run.rollout.cards == "same"
        self.server = Server(self.cast.server, sleep_level=self.run.rollout.sleep_level) if here and self.cast.server is not None else None
        self.asleep = self.server.asleep if self.server is not None else NOTHING
        if self.server is not None:
            self.stage.walk.reasons |= self.server.reasons
        self.kept = self._experience()
        self.experience = self._on_card(self.kept)

    # ------------------------------------------------------------------ phases
    def load(self) -> None:
        """Models one after the other, then the server, as large as it will ever be."""
        self.stage.load()
        if self.server is not None:
            found = self.stage.walk.instants["load"]
            there = plus(self.stage.others(), self.server.awake)
            self.stage.walk.instants["load"] = max_of(found, there) if self.stage.detailed else Snapshot(max_of(found, there).total, {})

    def rollout(self) -> None:
        """Answers are generated: on other cards, by a server, or by the actor."""
        stage, asked = self.stage, self.run.rollout
        if asked.cards == "other":
            stage.phase("rollout", {}, self.experience)
        elif self.server is not None:
            stage.phase("rollout", {}, self.server.awake, self.experience)
        else:
            stage3 = self.job.engine == "deepspeed" and self.job.zero == 3
            gathered = stage3 and (asked.engine == "deepspeed" or self.habits.gathers)
            at_once = asked.micro_batch or self.sequences
            found = stage.actor.generates(sequences=at_once, prompt=self.prompt, answer=self.answer, gathered=gathered)
            stage.phase("rollout", {ACTOR: found}, self.experience, self._scores_kept("experience/logits of the rollout, token by token"), self._scores_kept())

    def scores(self) -> None:
        """Passes without a graph: log-probabilities of actor and reference, values, rewards; then advantages, for which no model is needed."""
        players, rl = self.stage.players, self.run.rl
        if not self.habits.skips_actor or rl.epochs > 1 or self.server is not None:
            entropy = "none" if rl.entropy is None else rl.entropy
            self._pass("actor_log_probs", players[ACTOR], self._policy(entropy=entropy), self._scores_kept())
        if "reference" in players:
            self._pass("reference_log_probs", players["reference"], self._policy(entropy="none"), self._scores_kept())
        if "critic" in players:
            self._pass("values", players["critic"], Objective("values"))
        if "reward" in players:
            self._pass("rewards", players["reward"], Objective("score"))
        self.stage.phase("advantages", {}, self.asleep, self.experience)

    def updates(self) -> tuple[Plan, Strategy]:
        """Forward, backward and step of one micro-batch of the actor, then of the critic; some trainers take both in one step."""
        stage = self.stage
        plain = self.habits.plain_updates and not self.run.rl.entropy_loss
        entropy = "none" if self.run.rl.entropy is None or plain else self.run.rl.entropy
        actor, plan, strategy = stage.actor.updates(self._policy(entropy=entropy))
        critic = stage.players["critic"].updates(Objective("values"))[0] if "critic" in stage.players else None
        if critic is not None and self.habits.joint:
            self._joint(actor, critic)
            return plan, strategy
        stage.phase("actor_update", {ACTOR: _most(actor)}, self.asleep, self.experience)
        if critic is not None:
            stage.phase("critic_update", {"critic": _most(critic)}, self.asleep, self.experience)
        return plan, strategy

    def sync(self) -> None:
        """The actor's weights go to the server, some at a time, gathered where they are sharded."""
        if self.cast.server is None:
            return
        bucket, why = self._sent()
        path = "actor/weights/on their way to the server"
        self.stage.walk.reasons[path] = why
        there = self.server.weights if self.server is not None else NOTHING
        asleep = less(self.asleep, there) if self.asleep.by_path.keys() & there.by_path.keys() else self.asleep
        self.stage.phase("weight_sync", {ACTOR: self.stage.actor.at_rest}, there, asleep, Snapshot(bucket, {path: bucket}))

    def host(self) -> tuple[Term, ...]:
        """What server and experience keep in the host's memory."""
        found = []
        if self.server is not None and self.server.on_host:
            found.append(Term("host/rollout/weights while it sleeps", self.server.on_host, "its copy", {}, "vllm/device_allocator/cumem.py, sleep"))
        if self.run.rl.experience == "host":
            found += [Term(f"host/{path}", n, "numbers of a rollout", {}, "as asked") for path, n in self.kept.items() if isinstance(n, int)]
        return tuple(found)

    # ------------------------------------------------------------------ inside
    def _pass(self, name: str, player: Player, objective: Objective, *beside: Snapshot) -> None:
        asked = self.run.rl.score_micro_batch if self.run.rl.max_token_len is None else None
        sequences = None if asked is None else minimum(asked, self.sequences)
        found = player.scores(objective, sequences=sequences)
        self.stage.phase(name, {player.role.name: found}, self.asleep, self.experience, *beside)

    def _policy(self, *, entropy: str) -> Objective:
        """How the actor's head is asked: for the answer's tokens, or for all where the trainer takes whole logits or packs."""
        if self.run.code == "megatron":
            return Objective(self.habits.megatron[self.run.loss], None, entropy, self.run.rl.logprob_chunk)
        if self.run.loss == "fused_linear":
            assert self.habits.fused is not None
            return Objective(self.habits.fused, None, entropy)
        whole = (self.habits.whole and self.run.rl.remove_padding) or self.run.rl.max_token_len is not None
        name = "tiles" if self.run.loss == "chunked" else self.habits.objective
        return Objective(name, None if whole else self.answer, entropy)

    def _joint(self, actor: Walk, critic: Walk) -> None:
        """One loss of both: the critic runs first and back last, and one step takes all parameters (PolicyAndValueWrapper.forward)."""
        stage = self.stage
        ended = Snapshot(actor.total, {path: n for path, n in actor.by_path.items() if n})
        first = [(actor.instants[name], critic.instants["forward_end"]) for name in ("forward_peak", "forward_end", "backward_peak")]
        job = self.stage.actor.job
        held = job.micro_batch * job.seq_len * job.model.vocab_size * self.stage.actor.width
        logits = Snapshot(held, {"activations/lm_head/logits": held})
        step = plus(actor.instants["optimizer_step"], logits)
        pairs = [*first, (plus(ended, logits), critic.instants["backward_peak"]), (step, critic.instants["optimizer_step"])]
        for i, (one, other) in enumerate(pairs):
            stage.phase(f"joint {i}", {ACTOR: one, "critic": other}, self.asleep, self.experience)
        found = [stage.walk.instants.pop(f"joint {i}") for i in range(len(pairs))]
        stage.walk.instants["actor_update"] = max_of(*found)

    def _experience(self) -> dict[str, Any]:
        names = {role.name for role in self.cast.others} | {name for name, own in (self.run.roles or {}).items() if own and own.get("shares")}
        found = preference.experience_bytes(
            self.sequences, seq_len=self.job.seq_len, answer=self.answer, has_reference="reference" in names, has_critic="critic" in names
        )
        return {f"experience/{name}": n for name, n in found.items()}

    def _on_card(self, kept: dict[str, Any]) -> Snapshot:
        if self.run.rl.experience == "host":
            return NOTHING
        inputs = {"sequences": self.sequences, "seq_len": self.job.seq_len, "answer": self.answer}
        self.stage.walk.reasons |= {path: Reason("sequences * tokens * width", inputs, "memcalc/formulas/preference.py") for path in kept}
        return Snapshot(sum(kept.values()), kept)

    def _scores_kept(self, path: str = "experience/logits of the rollout") -> Snapshot:
        """The logits of all answers, which some trainers keep from generation on, where they are stacked (transformers' ``output_scores``)."""
        if not self.habits.keeps_scores:
            return NOTHING
        n = self.sequences * self.answer * self.job.model.vocab_size * 4
        self.stage.walk.reasons[path] = Reason("sequences * answer * vocab_size * 4", {}, "TRL 1.10, models/utils.py, batch_generation")
        return Snapshot(n, {path: n})

    def _sent(self) -> tuple[int, Reason]:
        """Weights that are whole at once on their way: the largest, gathered where it is cut; Megatron's parts are there beside what they are joined to."""
        width, mesh = self.stage.actor.width, self.job.mesh
        apart = self.run.code == "megatron"  # experts one by one
        largest = max((_elements(w, apart=apart) for _, w, _ in self.job.model.weights()), default=0) * width
        times = (2 if mesh.tp > 1 else int(mesh.pp > 1)) if apart else int(self.job.zero == 3 or mesh.tp > 1)
        size = self.run.rollout.bucket_mb
        why = "the largest weight, gathered" if times < 2 else "the largest weight, in parts and joined"
        if size is None:
            return largest * times, Reason(why, {"width": width}, "tensor by tensor")
        whole = self.job.model.num_params * width
        if self.job.engine == "deepspeed" and self.job.zero == 3 and size * MiB >= whole:
            return whole, Reason("all weights, gathered", {"bucket_mb": size}, "deepspeed/runtime/zero/partition_parameters.py, GatheredParameters")
        return size * MiB + largest * times, Reason(f"bucket_mb * 2^20 + {why}", {"bucket_mb": size}, "verl, update_weights")


def _elements(weight: Weight, *, apart: bool) -> int:
    """Of a weight, or of one expert's part of it."""
    experts = next((weight.shape[i].size for kind, i in weight.cuts if kind == "expert"), 1) if apart else 1
    return int(weight.num_params) // int(experts)


def _most(update: Walk) -> Snapshot:
    """The highest instant of a training step."""
    return max_of(*update.instants.values())
