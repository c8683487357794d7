"""How far a run can go, in words: a line a key, what binds, tokens per batch, and the trials that would find the same."""

from __future__ import annotations

import json
from typing import Any

from memcalc.report import words
from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.style import BOLD, DIM, Style, Unit, columns, unit_for, words_below, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.whatif.limits import Limit, Limits

RULE = (
    "at most: one unit more needs more than the card may give, allocated bytes and what stands outside the allocator alone. safe: up to there the step, "
    "played through the caching allocator at several values, gets by, and at one unit more does not."
)
HEAD = ("key", "asked", "safe", "at most", "needs", "one more needs", "what binds")
BESIDE = 28
"""Columns of what binds: on a narrower page it stands below."""
FIELDS = ("key", "asked", "safe", "bound", "need_bytes", "above_bytes", "instant")


def text(found: Limits, style: Style) -> str:
    """All answers."""
    unit = unit_for(found.room.capacity_bytes)
    rows = [list(HEAD), *(_row(answer, unit) for answer in found.answers)]
    lines = words_below(rows, right=[False, True, True, True, True, True, False], width=style.width, least=BESIDE)
    lines[0] = style.paint(lines[0], BOLD)
    probes = columns([["micro_batch", f"expect {unit.name}", ""], *([str(p.micro_batch), unit.number(p.allocated_bytes), _said(p.fits)] for p in found.probes)])
    told = [wrap(line, style.width) for line in (tokens(found), *notes(found)) if line]
    parts = [wrap(head(found), style.width), "\n".join(lines), *told]
    if found.probes:
        trial = wrap("To find the batch by trial, with what max_memory_allocated should read:", style.width)
        parts += [f"{trial}\n{_indented(probes)}", style.paint(wrap(RULE, style.width), DIM)]
    return "\n\n".join(parts)


def head(found: Limits) -> str:
    """What the limits are of."""
    unit, room = unit_for(found.room.capacity_bytes), found.room
    margin = f" (of {unit.full(room.capacity_bytes)}; the margin stays free)" if room.room_bytes != room.capacity_bytes else ""
    job, card = found.job, f"{unit.full(room.room_bytes)} of {room.name}{margin}"
    return f"{job.model.name} within {card}; each key by itself, micro_batch {job.micro_batch} × seq_len {job.seq_len}"


def tokens(found: Limits) -> str:
    """The sentence on batches counted in tokens."""
    if found.tokens is None:
        return ""
    most = found.tokens
    spread = f", looked at every {most.every}" if most.every > 1 else ""
    worst = f"the first shape that does not fit is {most.worst[0]:,} × {most.worst[1]:,}"
    return f"max_tokens_per_batch: {most.safe:,} safe, {most.bound:,} at most, in any shape of sequences up to {most.seq_len:,} long{spread}; {worst}"


def notes(found: Limits) -> list[str]:
    """What else is to be known."""
    most = found.job.model.max_position_embeddings
    longer = [a for a in found.answers if a.key == "seq_len" and most and a.bound > most]
    odd = [a for a in found.answers if a.gets_by]
    return [
        *(f"note: {found.job.model.name} is made for {most:,} tokens; the card takes more" for _ in longer),
        *(
            f"note: {a.key} {a.asked:,} as asked gets by, though {a.safe + a.step:,} does not: where blocks find a place is a matter of their sizes"
            for a in odd
        ),
    ]


def markdown(found: Limits) -> str:
    """The same for a page."""
    unit = unit_for(found.room.capacity_bytes)
    listed = [line for line in (tokens(found), *notes(found)) if line]
    return "\n\n".join([f"**{head(found)}**", grid([_row(answer, unit) for answer in found.answers], HEAD), "\n".join(f"- {line}" for line in listed)])


def comma_separated(found: Limits) -> str:
    """A line a key."""
    return comma_rows(FIELDS, [[getattr(answer, field) for field in FIELDS] for answer in found.answers])


def as_json(found: Limits) -> str:
    """As data."""
    room = found.room
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "gpu": room.name,
        "capacity_bytes": room.capacity_bytes,
        "room_bytes": room.room_bytes,
        "limits": [{**{field: getattr(answer, field) for field in FIELDS}, "terms": dict(answer.terms)} for answer in found.answers],
        "tokens": None if found.tokens is None else found.tokens._asdict(),
        "probes": [probe._asdict() for probe in found.probes],
    }
    return json.dumps(data, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- inside
def _row(answer: Limit, unit: Unit) -> list[str]:
    shown = (
        [f"{answer.asked:,}", f"{answer.safe:,}", f"{answer.bound:,}"] if answer.bound or answer.key == "layers kept" else [f"{answer.asked:,}", "none", "none"]
    )
    needs = unit.number(answer.need_bytes) if answer.bound else ""
    above = "" if answer.above_bytes is None else unit.number(answer.above_bytes)
    kinds = ", ".join(f"{name} {unit.number(num_bytes)}" for name, num_bytes in answer.terms)
    return [answer.key, *shown, needs, above, answer.stop or f"{words.instant(answer.instant)}: {kinds}"]


def _said(fits: bool) -> str:  # noqa: FBT001 (what the word is of)
    return "" if fits else "runs out"


def _indented(lines: list[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
