"""The engine's front: a run, or a job, to its estimate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memcalc.engine import step
from memcalc.engine.plan import Plan, make_plan
from memcalc.engine.ranks import blocks_of, expert_kinds
from memcalc.engine.resolve import SERVERS, resolve
from memcalc.engine.result import Estimate, Instant, ModelFacts, RankEstimate, Reservation, Risk, Term, Verdict
from memcalc.engine.sanity import sanity_of
from memcalc.engine.settings import num_trainable, settings_of
from memcalc.engine.strategies import strategy_for
from memcalc.engine.verdict import device_terms, host_capacity, reservation, verdict_for, with_host
from memcalc.engine.walk import Walk, Walked
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.run import Run
from memcalc.tape.tensor import Record
from memcalc.units import DTYPE_BYTES, gib


def estimate(run: Run) -> Estimate:
    """What a run needs, on every kind of rank, at every instant.

    Raises:
        InputError: the run cannot be: an unknown name, degrees that do not go together, …
    """
    return estimate_job(resolve(run))


def estimate_job(job: Job) -> Estimate:
    """The estimate of a resolved job."""
    if job.run.code in SERVERS:
        from memcalc.engine.serving import serve

        return serve(job)
    walks = walk_ranks(job)
    ranks = [rank_estimate(job, walked) for walked in walks]
    first = ranks[0]
    ranks.sort(key=lambda r: (r.rank.get("dp", 0), -r.allocated_bytes))
    total = job.model.num_params
    facts = ModelFacts(job.model.name, job.model.model_type, total, num_trainable(job), job.model.active_params or total)
    on_host = host_bytes(job, ranks)
    judged = ranks[0] if is_alone(ranks) or job.run.hardware.gpu is None else max(ranks, key=lambda r: r.device_bytes)
    verdict = with_host(verdict_of(job, judged), job.run, on_host)
    return Estimate(
        model=facts,
        asked=asked(job),
        ranks=tuple(ranks),
        verdict=verdict,
        sanity=sanity_of(job) if job.cast is None else (),
        assumptions=(*job.model.assumed, *job.assumptions),
        notes=(
            *job.notes,
            *accumulation_notes(job, ranks[0]),
            *peer_notes(ranks),
            *walks[0].strategy.notes(),
            *_mapped_notes(job),
            *_compile_notes(job, walks[0]),
        ),
        ignored=job.ignored,
        host_bytes=on_host,
        host_capacity_bytes=host_capacity(job.run),
        weigh=lambda: weigh(job, walks[0], first, verdict),
    )


def weigh(job: Job, walked: Walked, rank: RankEstimate, verdict: Verdict | None) -> Risk | None:
    """What lengths that vary make of a run that fits."""
    from memcalc.engine.fragmentation import risk_of

    return risk_of(job, walked, rank, verdict)


def verdict_of(job: Job, rank: RankEstimate) -> Verdict | None:
    """Whether the most loaded rank fits its card, and a server that shares it would start."""
    found = verdict_for(job, rank)
    if found is None or job.cast is None or job.cast.server is None:
        return found
    from memcalc.engine.rlhf.server import refusal_of

    return replace(found, refusal=refusal_of(job))


def accumulation_notes(job: Job, rank: RankEstimate) -> tuple[str, ...]:
    """What more micro-batches in a step cost: gradients that earlier ones have left, where the engine keeps any."""
    if job.run.grad_accum == 1 or job.run.task != "train" or job.mesh.pp > 1 or job.cast is not None:
        return ()
    held = {i.name: sum(t.bytes for t in i.terms if t.path.startswith("gradients/")) for i in rank.instants}
    kept = held.get("forward_end", 0) - held.get("start", 0)
    if kept <= 0:
        return (f"grad_accum {job.run.grad_accum} allocates nothing: between micro-batches no gradient is kept that was not there",)
    return (f"grad_accum {job.run.grad_accum}: {gib(kept)} of gradients of earlier micro-batches are there from forward on; their number changes nothing",)


def is_alone(ranks: list[RankEstimate]) -> bool:
    """Whether no other data-parallel rank holds more than the first one."""
    return not ranks[-1].rank.get("dp", 0)


def peer_notes(ranks: list[RankEstimate]) -> tuple[str, ...]:
    """How much more another data-parallel rank holds than the first, whose figures are shown."""
    if is_alone(ranks):
        return ()
    first, other = ranks[0], ranks[-1]
    more = other.allocated_bytes - first.allocated_bytes
    return (f"data-parallel rank {other.rank['dp']} holds {gib(more)} more at its peak than the first, which is shown; both decide whether it fits",)


def host_bytes(job: Job, ranks: list[RankEstimate]) -> int:
    """What the ranks of one node hold in its memory: as many of the most demanding as a node has cards."""
    most = max(sum(term.bytes for term in rank.host) for rank in ranks)
    return most * min(int(job.mesh.world), job.run.hardware.gpus_per_node)


def asked(job: Job) -> dict[str, Any]:
    """The run as typed, with what it resolved to in the place of what was left open."""
    mesh = job.mesh
    shown = (job.run if job.cast is None else job.cast.run).as_dict()
    cards = mesh.world if job.run.loading.device_map is None else job.run.hardware.gpus or 1
    shown |= {"seq_len": job.seq_len, "gpus": cards}
    shown["sharding"] = shown["sharding"] | {"engine": job.engine, "zero": job.zero, "dp": mesh.dp}
    return shown


def walk_ranks(job: Job, *, detailed: bool = True) -> list[Walked]:
    """Every kind of rank through its step; without details only totals are kept, and sizes may be arrays.

    Raises:
        InputError: the code is a server's, which has no step to walk through.
    """
    if job.run.code in SERVERS:
        raise InputError(f"{job.run.code} serves by a budget of its own: `memcalc estimate` says the longest sequence and how many fit", where="code")
    if job.cast is not None:
        from memcalc.engine.rlhf import walk

        return walk(job, detailed=detailed)
    kinds = expert_kinds(job)
    found = [walked._replace(rank=walked.rank | at, num_ranks=count) for at, count, kind in kinds for walked in _walk_stages(kind, detailed=detailed)]
    return with_peer(job, found[0]) if detailed and len(found) == 1 else found


SLIGHT = 0.001
"""The share below which a rank that holds more is not told apart."""


def with_peer(job: Job, first: Walked) -> list[Walked]:
    """The first data-parallel rank, and beside it the heaviest of those that hold more, by `SLIGHT` at least."""
    others = [(walk_rank(replace(job, dp_rank=rank)), rank) for rank in first.strategy.others()]
    other, rank = max(others, key=lambda found: found[0].peak_bytes, default=(first, 0))
    if other.peak_bytes <= first.peak_bytes * (1 + SLIGHT):
        return [first]
    alike = job.mesh.tp
    return [
        first._replace(rank=first.rank | {"dp": 0}, num_ranks=first.num_ranks - alike),
        other._replace(rank=first.rank | {"dp": rank}, num_ranks=alike),
    ]


def _walk_stages(job: Job, *, detailed: bool) -> list[Walked]:
    if job.run.loading.device_map is not None:
        from memcalc.engine.device_map import walk_mapped

        return walk_mapped(job, detailed=detailed)
    if job.mesh.pp == 1:
        return [walk_rank(job, detailed=detailed)]
    from memcalc.engine.pipeline import walk_stages

    return walk_stages(job, detailed=detailed)


def rank_estimate(job: Job, walked: Walked) -> RankEstimate:
    """One kind of rank."""
    walk = walked.walk
    instants = tuple(
        Instant(name, walked.rank, tuple(sorted((explain(walk, path, n) for path, n in shot.by_path.items()), key=lambda t: -t.bytes)))
        for name, shot in walk.instants.items()
    )
    peak = max(instant.allocated_bytes for instant in instants)
    host = walked.strategy.host() + walked.host + _saved_on_host(walked.plan) + _evaluation_on_host(job) + _cache_on_host(job)
    return RankEstimate(walked.rank, walked.num_ranks, instants, lambda: reserve(job, walked, peak), device_terms(job), host)


def _mapped_notes(job: Job) -> tuple[str, ...]:
    if job.run.loading.device_map is None:
        return ()
    from memcalc.engine.device_map import said

    return (said(job),)


def _cache_on_host(job: Job) -> tuple[Term, ...]:
    if job.run.task != "inference":
        return ()
    from memcalc.engine.keeping import on_host
    from memcalc.engine.loading import host_terms

    return on_host(job) + host_terms(job)


def _compile_notes(job: Job, walked: Walked) -> tuple[str, ...]:
    if not job.run.torch_compile:
        return ()
    from memcalc.engine.compiled import compile_notes

    return compile_notes(job, walked.plan)


def _saved_on_host(plan: Plan) -> tuple[Term, ...]:
    if not plan.settings.offloads:
        return ()
    return (Term("host/pinned/activations", plan.host_bytes, "what is saved for backward, as often as it is saved", {}, "torchtune, OffloadActivations"),)


def _evaluation_on_host(job: Job) -> tuple[Term, ...]:
    if job.run.evaluation is None:
        return ()
    from memcalc.engine.evaluation import host_terms

    return host_terms(job)


def reserve(job: Job, walked: Walked, allocated_bytes: int) -> Reservation:
    """What the caching allocator adds; other models that are there take their part of the card."""
    if job.cast is not None:
        from memcalc.engine.rlhf.reserved import reserve as beside_others

        return beside_others(job, walked, allocated_bytes)
    return reservation(job, walked, allocated_bytes)


def saving(job: Job, plan: Plan, *, detailed: bool) -> Walk:
    """The instant ``checkpoint_save``, on a walk of its own."""
    walk = Walk(detailed=detailed)
    step.save(walk, strategy_for(job)(job, plan))
    return walk


def walk_rank(job: Job, *, detailed: bool = True) -> Walked:
    """The one kind of rank that there is without a pipeline, through its step."""
    if job.run.generation.assistant_model is not None:
        from memcalc.engine.assistant import with_guesses

        job = with_guesses(job)
    strategy_class = strategy_for(job)
    settings = strategy_class.settings(job, settings_of(job))
    accumulate = job.run.grad_accum > 1 and strategy_class.accumulates_whole
    plan = make_plan(job, blocks_of(job), settings, keep_gradients=strategy_class.keep_gradients, accumulate=accumulate)
    walk = Walk(detailed=detailed)
    if (job.run.initialize and job.run.task != "inference") or job.loads_whole:
        before = Walk(detailed=detailed)
        step.initialize(before, strategy_class(job, plan))
        walk.instants |= before.instants
        walk.reasons |= before.reasons
    strategy = strategy_class(job, plan)
    saved = saving(job, plan, detailed=detailed) if job.run.checkpoint_save and job.run.task == "train" else None
    if job.run.task == "inference":
        from memcalc.engine.inference import infer

        infer(walk, job, plan, strategy)
    else:
        step.train(walk, plan, strategy, accumulated=job.run.grad_accum > 1)
    if saved is not None:
        walk.instants |= saved.instants
        walk.reasons |= saved.reasons
    if job.run.evaluation is not None:
        from memcalc.engine.evaluation import evaluate

        evaluated = evaluate(job, job.run.evaluation, detailed=detailed)
        walk.instants |= evaluated.instants
        walk.reasons |= evaluated.reasons
        walk.records |= evaluated.records
    return Walked({"pp": 0}, job.mesh.world, walk, plan, strategy)


def explain(walk: Walk, path: str, num_bytes: int) -> Term:
    """A term with its formula: as the engine gave it, or from the shapes of the tensors behind it."""
    reason = walk.reasons.get(path)
    if reason is not None:
        return Term(path, num_bytes, reason.formula, reason.inputs, reason.source)
    records = walk.records.get(path)
    if not records:
        return Term(path, num_bytes)
    record = records[0]
    copies, rest = divmod(num_bytes, record.num_bytes) if record.num_bytes else (0, 1)
    if rest:
        return Term(path, num_bytes, " + ".join(dict.fromkeys(shape_formula(r) for r in records)))
    inputs: dict[str, Any] = {"copies": copies} if copies != 1 else {}
    inputs |= {axis.name: axis.size for axis in record.shape}
    inputs[record.dtype] = DTYPE_BYTES[record.dtype]
    return Term(path, num_bytes, ("copies * " if copies != 1 else "") + shape_formula(record), inputs, "tensor of the module's own code")


def shape_formula(record: Record) -> str:
    """``micro_batch * seq_len * hidden_size * bfloat16``."""
    return " * ".join((*(axis.name for axis in record.shape), record.dtype))
