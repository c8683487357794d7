"""Placements of a model that serves, in words."""

from __future__ import annotations

import json

from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.style import BOLD, DIM, GREEN, Style, columns, unit_for, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.whatif.placements import SHARING, Placement, Placements

RULE = (
    "sequences: of the full length at once; shorter ones are more. More ranks of tp answer one sequence faster and hold the weights once; replicas "
    "hold them once each, and need no communication. pp spreads what tp cannot."
)
SHARED = "Ranks of dp share routed experts and hold the rest once each, with sequences of their own."


def text(found: Placements, style: Style) -> str:
    """All of it."""
    rows = _rows(found)
    lines = columns(rows, right=[True] * (len(rows[0]) - 1) + [False], width=style.width)
    painted = [style.paint(lines[0], BOLD)]
    painted += [style.paint(line, GREEN) if found.suffices(one) else style.paint(line, DIM) for line, one in zip(lines[1:], found.every, strict=True)]
    rule = f"{RULE} {SHARED}" if any(one.dp > 1 for one in found.every) else RULE
    parts = [wrap(head(found), style.width), "\n".join(painted), wrap(conclusion(found), style.width), style.paint(wrap(rule, style.width), DIM)]
    return "\n\n".join(parts)


def head(found: Placements) -> str:
    """What is placed where."""
    cards = f"{found.gpus} × {found.gpu}" if found.gpus is not None else f"as few {found.gpu} as do"
    return f"{found.model} on {cards}: {_many(found.sequences)} of {found.seq_len:,} tokens at once, at least"


def conclusion(found: Placements) -> str:
    """The fewest cards, and what holds most."""
    few, most = found.fewest, found.most
    if few is None or most is None:
        reasons = dict.fromkeys([*(one.why for one in found.every if one.why), *found.reasons])
        held = max((one.sequences for one in found.every), default=0)
        short = f"at most {_many(held)} are held at once" if held else "; ".join(reasons) or "no way divides the cards"
        return f"No way suffices: {short}. More or larger cards, a shorter sequence, or weights or cache in fewer bits may do."
    said = [f"Fewest cards: {few.cards} ({_name(few)}), {_many(few.per_replica)} at once{_length(few)}; flags: {flags_of(few)}."]
    if found.gpus is not None and most is not few:
        said.append(f"Most sequences on all {found.gpus}: {_name(most)} × {most.replicas}, {most.sequences:,}.")
    elif found.gpus is not None:
        start = f"{few.replicas} replicas of it hold {few.sequences:,}, and no" if few.replicas > 1 else "No"
        said.append(f"{start} other way on all {found.gpus} holds more.")
    if found.kv_heads and any(one.tp > found.kv_heads for one in found.every):
        said.append(f"Beyond tp {found.kv_heads} several ranks hold the same KV head, and the cache shrinks no further.")
    return " ".join(said)


def flags_of(one: Placement) -> str:
    """As flags of ``memcalc estimate``."""
    parts = [f"--{name} {value}" for name, value in _degrees(one) if value > 1]
    shared = [f"--{SHARING[one.run.code].replace('_', '-')}"] if one.dp > 1 else []
    return " ".join([*parts, *shared, f"--gpus {one.cards}"])


def markdown(found: Placements) -> str:
    """The same for a page."""
    first, *rows = _rows(found)
    return "\n\n".join([f"**{head(found)}**", grid(rows, first, numbers_from=0), conclusion(found)])


FIELDS = ("tp", "pp", "dp", "replicas", "weights_bytes", "kv_cache_bytes", "per_replica", "sequences", "longest", "starts", "why")


def comma_separated(found: Placements) -> str:
    """A line a way."""
    return comma_rows(FIELDS, [[str(v).lower() if isinstance(v := getattr(one, name), bool) else v for name in FIELDS] for one in found.every])


def as_json(found: Placements) -> str:
    """As data."""
    ways = [{name: getattr(one, name) for name in FIELDS} for one in found.every]
    names = {"fewest": found.fewest, "most": found.most}
    picked = {name: None if one is None else {"tp": one.tp, "pp": one.pp, "dp": one.dp, "replicas": one.replicas} for name, one in names.items()}
    top = {"schema_version": SCHEMA_VERSION, "model": found.model, "gpu": found.gpu, "gpus": found.gpus, "seq_len": found.seq_len}
    return json.dumps({**top, "sequences": found.sequences, "ways": ways, **picked, "reasons": found.reasons}, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- inside
def _rows(found: Placements) -> list[list[str]]:
    """With the heads of the columns first."""
    unit, names = unit_for(max((one.weights_bytes for one in found.every), default=1)), ["tp", "pp"]
    names += ["dp"] * any(one.dp > 1 for one in found.every)
    rows = [[*names, "replicas", f"weights {unit.name}", f"cache {unit.name}", "sequences", "of all", "longest", ""]]
    for one in found.every:
        sizes = [unit.number(one.weights_bytes), unit.number(one.kv_cache_bytes)]
        held = [f"{one.per_replica:,}", f"{one.sequences:,}", f"{one.longest:,}" if one.longest else "·"]
        rows.append([*(str(getattr(one, name)) for name in (*names, "replicas")), *sizes, *held, "" if one.starts else "does not start"])
    return rows


def _many(count: int) -> str:
    return f"{count:,} sequence{'s' * (count != 1)}"


def _name(one: Placement) -> str:
    parts = [f"{name} {value}" for name, value in _degrees(one) if value > 1]
    return " × ".join(parts) or "one card"


def _degrees(one: Placement) -> tuple[tuple[str, int], ...]:
    return ("tp", one.tp), ("pp", one.pp), ("dp", one.dp)


def _length(one: Placement) -> str:
    return f", one of up to {one.longest:,} tokens" if one.longest else ""
