"""Serving: an engine's budget on each kind of rank, the pool of cache that it leaves, and what that holds. One file per engine."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from memcalc.engine.cache import LayerCache, Policy, growth_bytes, sequence_bytes, token_bytes
from memcalc.engine.result import Estimate, Instant, ModelFacts, RankEstimate, Serving, Term, Verdict
from memcalc.engine.serving.budget import Budget, card_of
from memcalc.engine.serving.rank import Rank, ranks_of
from memcalc.engine.serving.refusals import refusal, turned_away
from memcalc.engine.verdict import host_capacity, with_host
from memcalc.specs.job import Job


def serve(job: Job) -> Estimate:
    """The estimate of a resolved server."""
    engine = import_module(f"memcalc.engine.serving.{job.run.code}")
    found = []
    for rank in getattr(engine, "ranks", ranks_of)(job):
        budget: Budget = engine.budget(job, rank)
        found.append((rank, budget, pool(job, rank, budget)))
    ranks = [rank_estimate(job, rank, budget, serving) for rank, budget, serving in found]
    # of the stages that keep something of a sequence the one with the fewest says how many there are
    i = min(range(len(found)), key=lambda i: (not found[i][2].sequence_bytes, found[i][2].max_concurrency, -found[i][0].weights_bytes))
    _, budget, serving = found[i]
    ranks.insert(0, ranks.pop(i))
    total = job.model.num_params
    on_host = sum(term.bytes for rank in ranks for term in rank.host)
    return Estimate(
        model=ModelFacts(job.model.name, job.model.model_type, total, 0, job.model.active_params or total),
        asked=asked(job),
        ranks=tuple(ranks),
        verdict=with_host(verdict_of(job, ranks, budget, serving), job.run, on_host),
        assumptions=(*job.model.assumed, *job.assumptions, *budget.assumptions),
        notes=(*job.notes, *budget.notes, *turned_away(serving)),
        ignored=job.ignored,
        host_bytes=on_host,
        host_capacity_bytes=host_capacity(job.run),
        serving=serving,
    )


def verdict_of(job: Job, ranks: list[RankEstimate], budget: Budget, serving: Serving) -> Verdict | None:
    """Of the card that holds most; an engine that takes a share of it may refuse to start."""
    if job.run.hardware.gpu is None:
        return None
    card, most = card_of(job), max(rank.device_bytes for rank in ranks)
    no = "" if budget.room_bytes is not None else budget.refusal or refusal(serving)
    return Verdict(card.name, card.capacity_bytes, most, margin=0.0, refusal=no)


def asked(job: Job) -> dict[str, Any]:
    """The run as typed, with what it resolved to in the place of what was left open."""
    shown = job.run.as_dict()
    shown |= {"seq_len": job.seq_len, "gpus": job.mesh.world}
    shown["sharding"] = {**shown["sharding"], "dp": job.mesh.dp}
    return shown


def pool(job: Job, rank: Rank, budget: Budget) -> Serving:
    """The pool of cache on a rank, in whole blocks where all its layers keep all tokens, and how many sequences it holds."""
    groups, length = budget.groups, job.seq_len
    caches, policy = (rank.caches, budget.policy) if groups is None else (groups.caches, groups.policy)
    each, uniform = token_bytes(rank.caches, policy), all(c.kind in ("attention", "latent") and c.window is None for c in caches)
    left = max(budget.kv_cache_bytes, 0)
    page = groups.page_bytes if groups is not None else each * policy.block if uniform else 0
    if page:
        left = (job.run.serving.num_gpu_blocks_override or left // page) * page
    one = int(sequence_bytes(caches, length, policy))
    replicas = (job.run.sharding.dp or 1) if job.run.serving.enable_dp_attention else 1
    room = left * replicas if budget.room_bytes is None else max(budget.room_bytes, 0)
    tokens = groups.tokens(left) if groups is not None else left // each if uniform and each else int(left / one * length) if one else 0
    limit = max(length, job.model.max_position_embeddings or length)
    return Serving(
        engine=job.run.code,
        policy=stored_how(caches, policy),
        budget_bytes=budget.requested_bytes,
        kv_cache_bytes=left,
        token_bytes=int(each),
        kv_tokens=int(tokens),
        block_size=policy.block,
        max_model_len=length,
        sequence_bytes=one,
        max_concurrency=room / one if one else float(job.micro_batch),
        largest_model_len=_longest(caches, policy, room // replicas, limit),
    )


def stored_how(caches: tuple[LayerCache, ...], policy: Policy) -> str:
    """How the cache is stored, in words."""
    kinds = {c.kind for c in caches}
    parts = [policy.dtype if policy.value_dtype in (None, policy.dtype) else f"keys in {policy.dtype}, values in {policy.value_dtype}"]
    parts += ["latents on every rank"] * ("latent" in kinds and policy.latent)
    parts += [f"windows keep {'their' if policy.windows else 'all'} tokens"] * any(c.window is not None for c in caches)
    parts += ["states beside"] * ("state" in kinds)
    return ", ".join([*parts, f"blocks of {policy.block}"] if policy.block > 1 else parts)


def rank_estimate(job: Job, rank: Rank, budget: Budget, serving: Serving) -> RankEstimate:
    """The instants of a rank: ``load``, ``prefill`` (everything at once), ``decode`` (between steps)."""
    at = {"pp": rank.stage.index}
    growth = growth_bytes(rank.caches if budget.groups is None else budget.groups.caches, budget.policy)
    cache = Term(
        "kv_cache/pool",
        serving.kv_cache_bytes,
        "what the engine's budget leaves",
        {"bytes per token": serving.token_bytes, "once windows are full": int(growth)},
        f"{job.run.code}, stored as {budget.policy.dtype}",
    )
    instants = (
        Instant("load", at, (*budget.weights, *(term for term in budget.others if term.bytes < 0))),  # what goes to the host never stands on the card
        Instant("prefill", at, (*budget.weights, cache, *budget.activations, *budget.others)),
        Instant("decode", at, (*budget.weights, cache, *budget.others)),
    )
    return RankEstimate(at, job.mesh.world // job.mesh.pp, instants, None, budget.device, budget.host)


def _longest(caches: tuple[LayerCache, ...], policy: Policy, left: int, limit: int) -> int:
    """The longest sequence of which the pool holds one, up to a limit."""

    def fits(length: int) -> bool:
        return int(sequence_bytes(caches, length, policy)) <= left

    if left <= 0 or not fits(1):
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
