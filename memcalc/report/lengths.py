"""A distribution of lengths in words: how likely a batch is that does not fit, what makes it safe, and the plan of batches."""

from __future__ import annotations

from typing import Any

from memcalc.report.style import BOLD, Style, columns, unit_for, wrap
from memcalc.report.tables import grid
from memcalc.whatif.lengths import Bucket, Spread

HEAD = ("samples up to", "share of samples", "batch", "tokens", "needs")


def text(found: Spread, style: Style) -> str:
    """The sentences, and the plan."""
    lines = columns([list(HEAD), *(_row(bucket, found) for bucket in found.buckets)], right=[True] * len(HEAD))
    lines[0] = style.paint(lines[0], BOLD)
    return "\n\n".join([*(wrap(line, style.width) for line in sentences(found)), "\n".join(lines)])


def markdown(found: Spread) -> str:
    """The same for a page."""
    return "\n\n".join(["\n".join(f"- {line}" for line in sentences(found)), grid([_row(bucket, found) for bucket in found.buckets], HEAD, numbers_from=0)])


def sentences(found: Spread) -> list[str]:
    """What is to be said."""
    d = found.found
    of = f"{d.num_samples:,} samples of {d.name}" if d.known else f"{d.name}, {d.num_samples:,} samples an epoch"
    head = f"lengths: {of}: {d.mean:,.0f} tokens on average, p50 {d.quantile(0.5):,}, p99 {d.quantile(0.99):,}, p99.9 {d.quantile(0.999):,}, max {d.longest:,}"
    return [
        head,
        chance(found),
        cure(found),
        "Batches that fit, by the length of their samples: as many as the card takes with all that it has, so leave a --margin.",
    ]


def chance(found: Spread) -> str:
    """How likely a batch that does not fit is."""
    name = found.sampler.name
    if found.chance == 0:
        return f"Under the {name} sampler every batch of an epoch fits."
    first = "" if found.expected_step is None else f"; the first comes after {found.expected_step:,.0f} steps on average"
    if name == "length-grouped":
        first = "; the longest sample comes in the very first batch"
    steps = ", ".join(f"{share:.2%} by step {step:,}" for step, share in found.by_step)
    steps = f" ({steps})" if steps and name != "length-grouped" else ""
    return f"Under the {name} sampler some batch of an epoch does not fit with probability {found.chance:.4g}{steps}{first}."


def cure(found: Spread) -> str:
    """What makes it safe."""
    parts = []
    if found.safe_length and found.safe_length < found.found.longest:
        cut = f"which cuts {found.cut_samples:.3%} of the samples and {found.cut_tokens:.3%} of the tokens"
        parts.append(f"truncation at {found.safe_length:,} tokens, {cut}")
    elif found.safe_length:
        parts.append("nothing needs to be cut")
    if found.budget:
        parts.append(f"a budget of {found.budget:,} tokens a batch, padding included, in place of a fixed number of sequences")
    return (
        f"Safe: {'; or '.join(parts)}."
        if parts
        else "No truncation and no budget makes it safe: not one sequence of the longest fits, nor a short one in this batch."
    )


def data(found: Spread) -> dict[str, Any]:
    """As data."""
    d = found.found
    return {
        "source": d.name,
        "num_samples": d.num_samples,
        "mean": d.mean,
        "longest": d.longest,
        "sampler": found.sampler.name,
        "chance": found.chance,
        "by_step": dict(found.by_step),
        "expected_step": found.expected_step,
        "safe_length": found.safe_length,
        "cut_samples": found.cut_samples,
        "cut_tokens": found.cut_tokens,
        "safe_token_budget": found.budget,
        "points": [point._asdict() for point in found.points],
        "buckets": [bucket._asdict() for bucket in found.buckets],
    }


# ---------------------------------------------------------------------- inside
def _row(bucket: Bucket, found: Spread) -> list[str]:
    unit = unit_for(found.room.capacity_bytes)
    fits = bucket.sequences > 0
    return [
        f"{bucket.length:,}",
        f"{bucket.share:.3%}",
        f"{bucket.sequences:,}" if fits else "none",
        f"{bucket.sequences * bucket.length:,}" if fits else "",
        unit.full(bucket.need_bytes),
    ]
