"""Gradients of tensors that several blocks use: the first block to run back makes one, the others add to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memcalc.engine.flow import Profile
    from memcalc.engine.plan import Part


def with_sums(parts: list[Part], anew: list[Callable[..., Profile]]) -> list[Part]:
    """The parts, recorded anew where a gradient that they make of a shared tensor meets that of a later one, or theirs is the only one.

    Args:
        parts: in the order of the forward pass, recorded as if each were the first to run back.
        anew: for each, its recording, to which ``graded`` and ``alone`` can be given.
    """
    found: list[Part] = []
    graded: frozenset[str] = frozenset()
    for part, record in zip(reversed(parts), reversed(anew), strict=True):
        names, meets = part.profile.grades, part.profile.grades & graded
        alone = frozenset(name for name, flow in part.profile.shared.items() if flow.requires_grad) - graded
        last = replace(part, profile=record(graded=meets, alone=alone)) if meets or alone else part
        if part.block.repeat > 1 and meets != names:
            found.append(replace(last, block=replace(part.block, repeat=1)))
            last = replace(part, block=replace(part.block, repeat=part.block.repeat - 1), profile=record(graded=names))
        found.append(last)
        graded |= names
    return found[::-1]
