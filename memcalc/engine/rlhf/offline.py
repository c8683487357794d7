"""Tasks of one pass over given answers: pairs, scores, a teacher's probabilities. A training step with another end, and others' passes beside it."""

from __future__ import annotations

from typing import Any

from memcalc.code.objective import Objective
from memcalc.engine.rlhf.player import less, max_of, named, plus
from memcalc.engine.rlhf.presets import habits_of
from memcalc.engine.rlhf.stage import ACTOR, Stage
from memcalc.engine.rlhf.tasks import TASKS
from memcalc.engine.walk import Reason, Snapshot, Walk, Walked
from memcalc.formulas import preference
from memcalc.specs.job import Job
from memcalc.specs.run import Run
from memcalc.tape.span import maximum
from memcalc.units import DTYPE_BYTES

WIDE = 4
"""Bytes of a logit of which log-probabilities are found by log-sum-exp."""
MASKS = ("actor/batch/attention_mask", "actor/batch/completion_mask", "actor/batch/answers to other prompts, and their masks")
SOURCE = "TRL 1.10, trainer/dpo_trainer.py, DPOTrainer._compute_loss"


def walk(job: Job, *, detailed: bool, kind: tuple[int, int]) -> Walked:
    """A step of one kind of rank: ``start``, ``forward_peak``, ``forward_end``, ``backward_peak``, ``optimizer_step``, with the other models in each."""
    assert job.cast is not None
    task = TASKS[job.cast.run.task]
    stage = Stage(job, sequences=task.sequences, detailed=detailed, kind=kind)
    aside = _Aside(stage)
    asked = aside.objective if task.objective == "preference" else Objective(task.objective)
    found, plan, strategy = stage.actor.updates(asked, aside=aside.after, paired=aside.judge == "reference")
    if stage.shows_construction:
        stage.load("initialize")
    for name, shot in found.instants.items():
        if name == "forward_peak" and aside.judge:
            shot = max_of(shot, aside.before())  # noqa: PLW2901
        stage.phase(name, {ACTOR: shot}, *([] if name == "start" else [_masks(stage)]))
    stage.explain()
    _file(stage.walk)
    return Walked(stage.rank, stage.num_ranks, stage.walk, plan, strategy, stage.others(ACTOR).total, stage.host())


def _masks(stage: Stage) -> Snapshot:
    """Of the batch beside its tokens: which are padding, and which belong to the answer."""
    player = stage.actor
    size = 0 if player.job.run.attention_mask else player.job.micro_batch * player.job.seq_len * 8
    answers = player.job.micro_batch * player.job.seq_len * 8 * (not TASKS[stage.cast.run.task].has_score)
    others = 3 * player.job.micro_batch * player.job.seq_len * 8 * (stage.cast.run.task == "kto")
    stage.walk.reasons |= dict.fromkeys(MASKS, Reason("sequences * seq_len * 8", {}, "TRL 1.10, DataCollatorForPreference"))
    return Snapshot(size + answers + others, dict(zip(MASKS, (size, answers, others), strict=True)))


def _of_pairs(run: Run) -> Objective:
    """What is asked for log-probabilities: in TRL's ways, in those of a framework over Megatron, or a loss for each token."""
    if run.code != "megatron":
        return Objective("tiles" if run.loss == "chunked" else "preference")
    return Objective("preference" if run.rl.framework is None else habits_of(run).megatron[run.loss], None, "none", run.rl.logprob_chunk)


class _Aside:
    """What happens between forward and backward: the pass of the other model, and what trainers look up for their logs.

    Attributes:
        judge: the other model, if it is on the card.
        objective: of log-probabilities: from whole logits, or in tiles.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.job = stage, stage.job
        self.judge = next((name for name in stage.players if name != ACTOR), "")
        self.objective = _of_pairs(stage.cast.run)

    def after(self, walk: Walk) -> None:
        """With the loss there: a reference's pass beside the logits, then entropies and means of them."""
        task = self.stage.cast.run.task
        if task not in ("dpo", "kto") or self.job.run.code == "megatron":
            return
        # logits in fp32 are saved, and there anyway
        tiled = self.objective.name == "tiles"
        own = self._logits(self.job) * (self._width(self.job) < WIDE and not tiled)
        walk.alloc("activations/lm_head/logits", own)
        held: Any = 0
        if self.judge == "reference":
            player = self.stage.players[self.judge]
            walk.beside(named(self.judge, less(player.scores(self.objective), player.idle)))
            held = self._logits(player.job) * (not tiled)
            walk.alloc("reference/activations/lm_head/logits", held, Reason("sequences * seq_len * vocab_size * width", {}, SOURCE))
        sizes = {"seq_len": self.job.seq_len, "vocab": self.job.model.vocab_size, "width": self._width(self.job)}
        batch = self.stage.actor.job.micro_batch
        seen = preference.entropy_bytes(batch, **sizes, copied=True)
        seen = (not tiled) * (maximum(seen, preference.halves_bytes(batch, **sizes)) if task == "kto" else seen)
        why = Reason("logits of all tokens but the last, and 3 * 128 rows of them", {"vocab_size": self.job.model.vocab_size}, SOURCE)
        walk.touch("activations/lm_head/entropy for the log", seen, why)
        walk.free("activations/lm_head/logits", own)
        if self.judge == "reference":
            walk.free("reference/activations/lm_head/logits", held)

    def before(self) -> Snapshot:
        """Before the loss is there: a teacher's pass beside the student's logits; with Megatron's modules a reference's before the policy's own."""
        if self.judge == "reference" and self.job.run.code == "megatron":
            player = self.stage.players[self.judge]
            return plus(self.stage.actor.resident, named(self.judge, less(player.scores(self.objective), player.idle)))
        if self.judge != "teacher":
            return Snapshot(0, {})
        player = self.stage.players[self.judge]
        shot = named(self.judge, less(player.scores(Objective("logits")), player.idle))
        found, _, _ = self.stage.actor.updates(Objective("logits"), aside=lambda walk: self._beside_logits(walk, shot))
        return found.instants["forward_peak"]

    def _beside_logits(self, walk: Walk, shot: Snapshot) -> None:
        own = self._logits(self.job)
        walk.alloc("activations/lm_head/logits", own)
        walk.beside(shot)
        walk.free("activations/lm_head/logits", own)

    def _logits(self, job: Job) -> Any:
        player = self.stage.actor
        return player.job.micro_batch * self.job.seq_len * job.model.vocab_size * self._width(job)

    @staticmethod
    def _width(job: Job) -> int:
        return 4 if job.run.autocast is not None else DTYPE_BYTES[job.run.dtype]


def _file(walk: Walk) -> None:
    """What the actor's walk filed under another role goes there."""

    def place(path: str) -> str:
        return path.removeprefix("actor/") if path.startswith(("actor/reference/", "actor/teacher/")) else path

    for shot in walk.instants.values():
        moved: dict[str, int] = {}
        for path, n in shot.by_path.items():
            moved[place(path)] = moved.get(place(path), 0) + n
        shot.by_path = moved
    walk.reasons = {place(path): reason for path, reason in walk.reasons.items()}
    walk.records = {place(path): records for path, records in walk.records.items()}
