"""Phrases that every form of a report shares: what was asked, the peak, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.engine.result import Estimate, RankEstimate, Serving, Verdict
from memcalc.report.style import Unit, unit_for
from memcalc.specs.fields import Section, run_keys
from memcalc.units import GB

ALWAYS = ("model", "task", "code", "attention", "micro_batch", "seq_len", "dtype", "optimizer", "recompute")
"""Keys that the first lines name whatever their value."""

DEGREES = ("dp", "tp", "pp", "cp", "ep")

EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
"""Segments of the caching allocator that grow in place."""
FITS, TIGHT, DOES_NOT_FIT = "fits", "tight", "does not fit"


def count(number: int) -> str:
    """A number of parameters as people say it.

    >>> count(6_738_415_616), count(124_439_808), count(512)
    ('6.74 B', '124.44 M', '512')
    """
    for size, name in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= size:
            return f"{number / size:.2f} {name}"
    return f"{number:,}"


def unit_of(estimate: Estimate) -> Unit:
    """The unit of a whole report."""
    return unit_for(estimate.most_loaded.allocated_bytes)


def shows_card(estimate: Estimate) -> bool:
    """Whether a report tells what the card holds beside the tensors: where there is something to hold it against, since finding it takes time."""
    return estimate.verdict is not None


def instant(name: str) -> str:
    """``backward_peak`` → ``backward peak``."""
    return name.replace("_", " ")


def model_line(estimate: Estimate) -> str:
    """The model and its size."""
    model = estimate.model
    parts = [f"{count(model.total_params)} parameters"]
    if model.active_params != model.total_params:
        parts.append(f"{count(model.active_params)} active per token")
    if 0 < model.trainable_params < model.total_params:
        parts.append(f"{count(model.trainable_params)} trainable ({model.trainable_params / model.total_params:.2%})")
    return f"{model.name} ({', '.join([model.model_type, *parts])})"


def job_line(asked: Mapping[str, Any]) -> str:
    """What the job does, all defaults that matter included."""
    task = asked.get("task")
    parts = [str(task), str(asked.get("dtype"))]
    if task != "inference":
        parts += [str(asked.get("optimizer")), f"recompute {asked.get('recompute')}"]
    code = f"{asked.get('attention')} attention, {asked.get('code')} code"
    return f"{', '.join(parts)} · micro_batch {asked.get('micro_batch')} × seq_len {asked.get('seq_len')} · {code}"


def cards_line(estimate: Estimate) -> str:
    """The cards and how the job is spread over them."""
    asked = estimate.asked
    sharding, gpu = asked.get("sharding", {}), asked.get("hardware", {}).get("gpu")
    gpu = estimate.verdict.gpu or gpu if estimate.verdict else gpu
    gpus, mapped = asked.get("gpus", 1), asked.get("loading", {}).get("device_map")
    cards = f"{gpus} × {gpu}" if gpu else f"{gpus} GPU{'s' if gpus != 1 else ''}"
    degrees = [f"{name} {sharding[name]}" for name in DEGREES if sharding.get(name, 1) != 1]
    spread = f" = {' × '.join(degrees)}" if degrees else ""
    return f"{cards}{spread}{f' · one process, device_map {mapped}' if mapped else _engine(sharding, gpus)}"


def _engine(sharding: Mapping[str, Any], gpus: Any) -> str:
    engine, zero = sharding.get("engine"), sharding.get("zero")
    if not engine or (gpus == 1 and not zero):
        return ""
    return f" · {engine}{f' ZeRO-{zero}' if zero and engine in ('deepspeed', 'megatron') else ''}"


def other_keys(asked: Mapping[str, Any]) -> list[str]:
    """Keys with another value than their default that no line above names: ``grad_accum 8``; of a section that is there with its defaults, ``liger on``."""
    shown = {*ALWAYS, *(f"sharding.{name}" for name in (*DEGREES, "engine", "zero")), "hardware.gpu", "hardware.gpus"}
    found = [f"{name} on" for name, node in run_keys().children.items() if isinstance(node, Section) and node.nullable and asked.get(name) == {}]
    for leaf in run_keys().leaves():
        value: Any = asked
        for part in leaf.path:
            value = value.get(part) if isinstance(value, Mapping) else None
        section_given = len(leaf.path) > 1 and leaf.path[0] == "lora" and value is not None
        if leaf.key not in shown and value is not None and (value != leaf.default or section_given):
            found.append(f"{leaf.key} {_value(value)}")
    return found


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return "given"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def rank_name(rank: RankEstimate) -> str:
    """``pp 3`` or what else tells the rank from others; empty where nothing does."""
    return ", ".join(f"{name} {value}" for name, value in rank.rank.items())


def rank_line(estimate: Estimate) -> str:
    """Whose memory the table shows."""
    rank, kinds = estimate.most_loaded, len(estimate.ranks)
    total = sum(r.num_ranks for r in estimate.ranks)
    if kinds == 1:
        return "on the GPU" if total == 1 else f"on each of {total} GPUs, all alike"
    if "dp" in rank.rank:
        return f"on the first data-parallel rank of {total} GPUs; --ranks shows the most loaded one, too"
    alike = f"{rank.num_ranks} of {total} GPUs are" if rank.num_ranks > 1 else f"one of {total} GPUs is"
    return f"on the most loaded of {kinds} kinds of rank, {rank_name(rank)} ({alike} so; --ranks shows all)"


def peak_line(estimate: Estimate, unit: Unit) -> str:
    """The peak: how much, when, and what stands on top of what is allocated."""
    rank = estimate.most_loaded
    parts = [f"{unit.full(rank.allocated_bytes)} allocated, in {instant(rank.peak.name)}"]
    if not shows_card(estimate):
        return parts[0]
    if unit.visible(rank.reserved_bytes - rank.allocated_bytes):
        parts.append(f"{unit.full(rank.reserved_bytes)} reserved by the caching allocator")
    if unit.visible(rank.device_bytes - rank.reserved_bytes):
        parts.append(f"{unit.full(rank.device_bytes)} on the card, with context and libraries")
    return "; ".join(parts)


def allocator_line(estimate: Estimate) -> str:
    """What the caching allocator had to do to go on, or why it could not; empty where nothing was in its way."""
    if not shows_card(estimate):
        return ""
    found = estimate.most_loaded.reservation
    if found.wanted_bytes:
        unit = unit_for(found.wanted_bytes)
        return f"the caching allocator finds no room for a segment of {unit.full(found.wanted_bytes)}, even with its unused ones given back"
    if found.num_releases:
        times = "once" if found.num_releases == 1 else f"{found.num_releases} times"
        return f"to go on, the caching allocator gives its unused segments back to the card ({times} in the steps that were played), which costs time"
    return ""


def serving_lines(serving: Serving, unit: Unit) -> list[str]:
    """The pool of cache, and what it holds."""
    if not serving.sequence_bytes:
        return ["no cache on the cards: it stays on the host with its layers"]
    held = f"{serving.kv_tokens:,} tokens of {serving.token_bytes:,} bytes" if serving.token_bytes else "states of sequences, as large at any length"
    pool = f"{unit.full(serving.kv_cache_bytes)} of cache on each card: {held} ({serving.policy})"
    each = unit_for(serving.sequence_bytes).full(serving.sequence_bytes)
    one = f"{serving.max_concurrency:.2f} sequences of {serving.max_model_len:,} tokens ({each} each)"
    return [pool, f"{one}; the longest that fits: {serving.largest_model_len:,}"]


def host_line(estimate: Estimate, unit: Unit) -> str:
    """What is kept on a node's host, in the units of both who count and who sell memory, and what is left there."""
    here, there = estimate.host_bytes, estimate.host_capacity_bytes
    said = f"{unit.full(here)} ({here / GB:,.1f} GB) of memory on each node"
    if there is None:
        return said
    left = f"{unit.full(abs(there - here))} ({abs(there - here) / there:.0%})"
    return f"{said}, of {unit.full(there)}: {left} {'too much' if here > there else 'to spare'}"


def state(verdict: Verdict) -> str:
    """One of three words."""
    return DOES_NOT_FIT if not verdict.fits else TIGHT if verdict.tight else FITS


def verdict_line(verdict: Verdict) -> str:
    """Whether it fits, with head-room and capacity."""
    unit = unit_for(max(verdict.capacity_bytes, verdict.device_bytes))
    what = verdict.gpu or "the limit"
    head = f"{unit.full(verdict.device_bytes)} of {unit.full(verdict.capacity_bytes)}"
    share = abs(verdict.headroom_bytes) / verdict.capacity_bytes if verdict.capacity_bytes else 0.0
    room = f"{unit.full(abs(verdict.headroom_bytes))} ({share:.0%})"
    if verdict.refusal and verdict.headroom_bytes >= 0:
        return f"does not start on {what}: {verdict.refusal}"
    if not verdict.fits:
        return f"does not fit {what}: {head}, {room} too much"
    near = verdict.headroom_bytes < verdict.margin * verdict.capacity_bytes
    tight = f", less than the margin of {verdict.margin:.0%}" if near else ""
    tight += ", and little on its host for what else runs there" if verdict.host_is_tight else ""
    return f"{'fits' if not verdict.tight else 'tight on'} {what}: {head}, {room} to spare{tight}"


def risk_line(estimate: Estimate) -> str:
    """What lengths that vary make of a run that fits, and what helps; empty where it has room for them."""
    verdict = estimate.verdict
    risk = estimate.risk if verdict is not None and verdict.gpu is not None else None  # asked only where a card decides
    if risk is None or verdict is None:
        return ""
    unit = unit_for(verdict.capacity_bytes)

    def shown(num_bytes: int) -> str:
        return f"{unit.full(num_bytes)} ({num_bytes / verdict.capacity_bytes:.0%})"

    share = f"{verdict.device_bytes / verdict.capacity_bytes:.0%} of the card"
    if risk.is_refused:
        what = f"{share}, and a segment finds no room where samples differ in length"
    elif risk.device_bytes > verdict.device_bytes:
        what = f"{share}, and {shown(risk.device_bytes)} by fragmentation where samples differ in length"
    else:
        what = f"{share}, where samples differ in length, too"
    helps = f"; {EXPANDABLE} keeps it at {shown(risk.expandable_bytes)}" if risk.expandable_bytes < min(risk.device_bytes, verdict.capacity_bytes) else ""
    return f"at risk: {what}{helps}"
