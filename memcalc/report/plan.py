"""Plans in words: those that fit by relative cost, the front of memory against cost, why the first is first, which three are worth a trial."""

from __future__ import annotations

import json
from typing import Any

from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.style import BOLD, DIM, GREEN, Style, Unit, columns, unit_for, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.whatif.candidates import Way
from memcalc.whatif.plan import Fitting, Plans

DEGREES = ("dp", "tp", "pp", "vpp", "cp", "ep")
HEAD = ("", "engine", *DEGREES, "micro_batch", "grad_accum", "recompute", "offload")
RULE = (
    "cost: time over that of the arithmetic alone, from published formulas and an H100's data sheet (memcalc/formulas/step_costs.py); it ranks plans "
    "and promises no throughput. ● no other way needs less at no higher cost; ▸ worth a trial. needs: allocated bytes and what stands outside the "
    "allocator; those worth a trial were played through it as well. fsdp2 is planned with fp32 weights and bf16 autocast, attention with flash_attention_2 "
    "where nothing else is asked for, offload where a node's 2 TB take it."
)


def text(found: Plans, style: Style) -> str:
    """All of it."""
    if not found.fitting:
        return "\n\n".join(wrap(part, style.width) for part in (head(found), nothing(found)))
    unit = unit_for(found.room.capacity_bytes)
    rows = [[*HEAD, f"needs {unit.name}", "cost"], *(_row(one, unit, trial=i in found.trials) for i, one in enumerate(found.fitting))]
    same = [i for i in range(len(HEAD)) if HEAD[i] in ("vpp", "cp", "ep", "offload") and len({row[i] for row in rows[1:]} - {"1", ""}) == 0]
    rows = [[cell for i, cell in enumerate(row) if i not in same] for row in rows]
    lines = columns(rows, right=[cell in (*DEGREES, "micro_batch", "grad_accum", rows[0][-2], "cost") for cell in rows[0]], width=style.width)
    lines = [style.paint(lines[0], BOLD), style.paint(lines[1], GREEN), *lines[2:]]
    parts = [wrap(head(found), style.width), "\n".join(lines), wrap(why(found), style.width), wrap(trials(found), style.width)]
    return "\n\n".join([*parts, style.paint(wrap(RULE, style.width), DIM)])


def head(found: Plans) -> str:
    """What was planned, and how many ways there are."""
    unit, model = unit_for(found.room.capacity_bytes), found.model
    refused = f", {found.num_refused} groups cannot be" if found.num_refused else ""
    missed = "the front goes on" if len(found.fitting) >= found.top else "a cheaper one may be missing"
    left = f"; {found.num_left:,} ways were not looked at: {missed}" if found.num_left else ""
    failed = f"; {found.num_failed} that fit ran out in the caching allocator" if found.num_failed else ""
    return (
        f"{model.spec.name} on {model.gpus:,} × {found.room.name}, {model.global_batch:,} sequences of {model.seq_len:,} tokens a step, within "
        f"{unit.full(found.room.room_bytes)}: {found.num_ways:,} ways, {found.num_pruned:,} cannot fit by weights and states alone, "
        f"{found.num_walked} groups walked in the order of their cost{refused}{left}{failed}"
    )


def nothing(found: Plans) -> str:
    """Why there is no plan."""
    reasons = "; ".join(found.reasons) if found.reasons else "all need more than the card offers"
    return f"No way fits: {reasons}. More cards, shorter sequences or --limit with a larger card may."


def why(found: Plans) -> str:
    """Why the first is first."""
    best = found.fitting[0].way
    parts = [f"{name} {value:.1%}" for name, value in sorted(best.parts, key=lambda part: -part[1]) if value >= 0.0005]
    cost = f"beyond arithmetic it costs {', '.join(parts)}" if parts else "it costs nothing that this model of costs sees"
    leaner = next((one for one in found.fitting[1:] if one.on_front and one.need_bytes < found.fitting[0].need_bytes), None)
    unit = unit_for(found.room.capacity_bytes)
    saves = (
        "" if leaner is None else f"; {name_of(leaner.way)} needs {unit.full(found.fitting[0].need_bytes - leaner.need_bytes)} less at {leaner.way.cost:.3f}"
    )
    return f"First is {name_of(best)}: {cost}{saves}."


def trials(found: Plans) -> str:
    """Which are worth a real trial."""
    return "Worth a trial: " + "; ".join(f"{name_of(found.fitting[i].way)} ({flags_of(found.fitting[i].way)})" for i in found.trials) + "."


def name_of(way: Way) -> str:
    """``megatron tp 8 × pp 16, micro_batch 1``."""
    degrees = " × ".join(f"{name} {getattr(way, name)}" for name in DEGREES if getattr(way, name) > 1)
    zero = f" ZeRO-{way.zero}" if way.engine == "deepspeed" else ""
    rest = [f"recompute {way.recompute}"] if way.recompute != "none" else []
    return ", ".join([f"{way.engine}{zero} {degrees}".rstrip(), f"micro_batch {way.micro_batch}", *rest, *(["offload"] if way.offload else [])])


def flags_of(way: Way) -> str:
    """The way as flags."""
    dull = {**dict.fromkeys(DEGREES, 1), "sp": False, "recompute": "none", "micro_batch": 1, "grad_accum": 1}
    shown = {key: value for key, value in way.keys().items() if dull.get(key) != value}
    return " ".join(f"--{key.replace('_', '-')}" if value is True else f"--{key.replace('_', '-')} {value}" for key, value in shown.items())


def markdown(found: Plans) -> str:
    """The same for a page."""
    if not found.fitting:
        return f"**{head(found)}**\n\n{nothing(found)}"
    unit = unit_for(found.room.capacity_bytes)
    rows = [_row(one, unit, trial=i in found.trials) for i, one in enumerate(found.fitting)]
    return "\n\n".join(
        [f"**{head(found)}**", grid(rows, [*HEAD, f"needs {unit.name}", "cost"], numbers_from=2), f"- {why(found)}\n- {trials(found)}\n- {RULE}"]
    )


def comma_separated(found: Plans) -> str:
    """A line a plan."""
    rows = [list(_facts(one).values()) for one in found.fitting]
    return comma_rows(["engine", "zero", *DEGREES, "micro_batch", "grad_accum", "recompute", "offload", "need_bytes", "cost", "on_front"], rows)


def as_json(found: Plans) -> str:
    """As data."""
    plans = [
        {**_facts(one), "keys": one.way.keys(), "costs": dict(one.way.parts), "trial": i in found.trials, "played": one.played}
        for i, one in enumerate(found.fitting)
    ]
    counts = {
        "ways": found.num_ways,
        "pruned": found.num_pruned,
        "walked": found.num_walked,
        "refused": found.num_refused,
        "left": found.num_left,
        "failed": found.num_failed,
    }
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "gpu": found.room.name, "room_bytes": found.room.room_bytes, "counts": counts, "plans": plans}
    return json.dumps(data, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- inside
def _facts(one: Fitting) -> dict[str, Any]:
    way = one.way
    degrees = {name: getattr(way, name) for name in ("engine", "zero", *DEGREES, "micro_batch", "grad_accum", "recompute", "offload")}
    return {**degrees, "need_bytes": one.need_bytes, "cost": round(way.cost, 6), "on_front": one.on_front}


def _row(one: Fitting, unit: Unit, *, trial: bool) -> list[str]:
    way = one.way
    engine = f"{way.engine} ZeRO-{way.zero}" if way.engine == "deepspeed" else way.engine
    mark = f"{'▸' if trial else ' '}{'●' if one.on_front else ' '}"
    degrees = [str(getattr(way, name)) for name in DEGREES]
    offload = "cpu" if way.offload else ""
    return [mark, engine, *degrees, str(way.micro_batch), str(way.grad_accum), way.recompute, offload, unit.number(one.need_bytes), f"{way.cost:.3f}"]
