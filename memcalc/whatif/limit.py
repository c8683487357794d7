"""An estimate held against a limit beside, or instead of, the card's own capacity."""

from __future__ import annotations

import re
from dataclasses import replace

from memcalc.engine.result import Estimate, Verdict
from memcalc.errors import InputError


def held_against(estimate: Estimate, *, limit_bytes: int | None = None, margin: float | None = None) -> Estimate:
    """The estimate with the verdict of the narrower of card and limit.

    Args:
        estimate: with or without a verdict of its own.
        limit_bytes: what the most loaded rank may take.
        margin: the share of the capacity that should stay free.
    """
    verdict = estimate.verdict
    if limit_bytes is not None and (verdict is None or limit_bytes < verdict.capacity_bytes):
        verdict = Verdict(None, limit_bytes, estimate.most_loaded.device_bytes)
    if verdict is not None and margin is not None:
        verdict = replace(verdict, margin=margin)
    return replace(estimate, verdict=verdict)


def parse_margin(text: str, *, where: str | None = None) -> float:
    """A share of one as people write it.

    >>> parse_margin("5%"), parse_margin("0.1")
    (0.05, 0.1)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*", text)
    share = float(match.group(1)) / (100 if match.group(2) else 1) if match else 1.0
    if not 0 <= share < 1:
        raise InputError(f"{text!r} is not a share of the card; accepted: 5% or 0.05, below 100%", where=where)
    return share
