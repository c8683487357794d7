"""Inference with transformers' modules: weights, a prefill, what stays between tokens, and tokens after the prompt."""

from __future__ import annotations

from memcalc.engine import step
from memcalc.engine.assistant import assistant_of
from memcalc.engine.generation import generate
from memcalc.engine.keeping import prefetched
from memcalc.engine.loading import CORE, beside
from memcalc.engine.plan import Plan
from memcalc.engine.strategies import Strategy
from memcalc.engine.walk import Reason, Walk
from memcalc.specs.job import Job


def infer(walk: Walk, job: Job, plan: Plan, strategy: Strategy) -> None:
    """The instants ``load`` (weights), ``prefill`` (its peak), ``decode`` (between tokens: weights, cache, last logits).

    On request ``loading`` (the most while weights come) before them, and ``generate`` after.
    """
    assistant = assistant_of(job)
    strategy.resident(walk)
    if assistant is not None:
        assistant.load(walk)
    if job.run.initialize:
        extra = beside(job, [part.block for part in plan.parts])
        with walk.window("loading"):
            walk.touch("weights/being loaded", extra.bytes, Reason(extra.why, {}, CORE))
    walk.instant("load")
    with walk.window("prefill"):
        if assistant is not None:
            assistant.guess(walk, job)
        step.forward(walk, plan, strategy)
        if assistant is not None:
            assistant.check(walk, job)
    step.let_go(walk, plan)
    waiting = job.micro_batch * prefetched(job, job.seq_len)
    walk.alloc("kv_cache/of one layer, from the host", waiting, Reason("keys and values of the layer that comes next", {}, "transformers, Cache.prefetch"))
    walk.instant("decode")
    if job.run.new_tokens:
        generate(walk, job, assistant)
