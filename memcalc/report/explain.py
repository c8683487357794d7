"""Every term's derivation: the formula, the numbers put in, and where it is from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memcalc.engine.result import Estimate, RankEstimate, Term
from memcalc.report import words
from memcalc.report.style import BOLD, DIM, Style, unit_for


def explained(estimate: Estimate, style: Style) -> str:
    """A paragraph for each path: bytes, formula, numbers, source, and the instants at which it is so."""
    rank = estimate.most_loaded
    lines = [style.paint("Every term", BOLD)]
    for path, found in _by_path(rank).items():
        lines += ["", style.paint(path, BOLD)]
        for term, instants in found:
            unit = unit_for(abs(term.bytes))
            lines.append(f"  {unit.full(term.bytes)}  {style.paint(f'in {instants}', DIM)}")
            if term.formula:
                lines.append(f"    = {derivation(term)}")
            if term.source:
                lines.append(style.paint(f"    {term.source}", DIM))
    return "\n".join(lines)


def derivation(term: Term) -> str:
    """The formula, and again with its numbers put in.

    >>> derivation(Term("weights", 20, "num_params * width", {"num_params": 10, "width": 2}))
    'num_params * width = 10 * 2 = 20 bytes'
    """
    numbers = substituted(term.formula, term.inputs or {})
    middle = f" = {numbers}" if numbers != term.formula else ""
    return f"{term.formula}{middle} = {term.bytes:,} bytes"


def substituted(formula: str, inputs: Mapping[str, Any]) -> str:
    """A formula with the values of its names.

    A name may hold more than letters (``num_attention_heads * head_dim/2`` is one axis), so the longest go first.

    >>> substituted("copies * heads * head_dim/2", {"copies": 32, "heads * head_dim/2": 2048})
    '32 * 2048'
    """
    names = sorted((name for name in inputs if name), key=len, reverse=True)
    if not names:
        return formula
    pattern = "|".join(rf"(?<![\w.]){re.escape(name)}(?![\w.])" for name in names)
    return re.sub(pattern, lambda match: str(inputs[match.group(0)]), formula)


def _by_path(rank: RankEstimate) -> dict[str, list[tuple[Term, str]]]:
    """Terms by path, the largest first; equal ones of several instants once."""
    seen: dict[str, dict[tuple[Any, ...], tuple[Term, list[str]]]] = {}
    for instant in rank.instants:
        for term in instant.terms:
            same = seen.setdefault(term.path, {})
            same.setdefault((term.bytes, term.formula), (term, []))[1].append(words.instant(instant.name))
    for name, terms in (("reserved by the allocator", rank.reserved), ("on the card beside the allocator", rank.device)):
        for term in terms:
            seen.setdefault(term.path, {}).setdefault((term.bytes, term.formula), (term, []))[1].append(name)
    ordered = sorted(seen.items(), key=lambda item: -max(abs(term.bytes) for term, _ in item[1].values()))
    return {path: [(term, ", ".join(names)) for term, names in same.values()] for path, same in ordered}
