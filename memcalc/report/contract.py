"""An estimate as the JSON that others rely on; its shape changes only with `SCHEMA_VERSION`."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from memcalc.engine.result import Estimate, Instant, RankEstimate, Term

SCHEMA_VERSION = 1


def as_json(estimate: Estimate, *, ranks: bool = False) -> str:
    """The JSON text."""
    return json.dumps(as_dict(estimate, ranks=ranks), indent=1, ensure_ascii=False, default=str)


def as_dict(estimate: Estimate, *, ranks: bool = False) -> dict[str, Any]:
    """The same as plain data.

    Args:
        estimate: what to write.
        ranks: add ``ranks``: every kind of rank with its instants and peak.
    """
    model, loaded = estimate.model, estimate.most_loaded
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "name": model.name,
            "model_type": model.model_type,
            "params": {"total": model.total_params, "trainable": model.trainable_params, "active": model.active_params},
        },
        "instants": [_instant(instant) for instant in loaded.instants],
        "peak": _peak(loaded),
        "host": {"bytes": estimate.host_bytes} | ({} if estimate.host_capacity_bytes is None else {"capacity_bytes": estimate.host_capacity_bytes}),
        "verdict": _verdict(estimate),
        "assumptions": [*estimate.assumptions, *estimate.notes],
        "ignored": list(estimate.ignored),
    }
    if estimate.serving is not None:
        found["serving"] = {f.name: getattr(estimate.serving, f.name) for f in fields(estimate.serving)}
    if ranks:
        found["ranks"] = [_rank(rank) for rank in estimate.ranks]
    return found


def _instant(instant: Instant) -> dict[str, Any]:
    return {
        "name": instant.name,
        "rank": dict(instant.rank),
        "allocated_bytes": instant.allocated_bytes,
        "terms": [_term(term) for term in instant.terms],
    }


def _term(term: Term) -> dict[str, Any]:
    return {"path": term.path, "bytes": term.bytes, "formula": term.formula, "inputs": dict(term.inputs or {}), "source": term.source}


def _peak(rank: RankEstimate) -> dict[str, Any]:
    return {
        "instant": rank.peak.name,
        "rank": dict(rank.rank),
        "allocated_bytes": rank.allocated_bytes,
        "reserved_bytes": rank.reserved_bytes,
        "device_bytes": rank.device_bytes,
    }


def _verdict(estimate: Estimate) -> dict[str, Any] | None:
    verdict = estimate.verdict
    if verdict is None:
        return None
    found = {"fits": verdict.fits, "gpu": verdict.gpu, "capacity_bytes": verdict.capacity_bytes, "headroom_bytes": verdict.headroom_bytes}
    found |= {"refusal": verdict.refusal} if verdict.refusal else {}
    risk = estimate.risk if verdict.gpu is not None else None
    return found | ({"risk": {f.name: getattr(risk, f.name) for f in fields(risk)}} if risk is not None else {})


def _rank(rank: RankEstimate) -> dict[str, Any]:
    return {
        "rank": dict(rank.rank),
        "num_ranks": rank.num_ranks,
        "instants": [_instant(instant) for instant in rank.instants],
        "peak": _peak(rank),
        "reserved_terms": [_term(term) for term in rank.reserved],
        "device_terms": [_term(term) for term in rank.device],
        "host_terms": [_term(term) for term in rank.host],
    }
