"""Dropout, which inference and evaluation leave out."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


def dropout(ctx: Context, x: Tensor, p: float) -> Tensor:
    """x after dropout with probability p; x itself where nothing is trained or p is 0 (nn.Dropout)."""
    return F.dropout(x, p) if ctx.settings.records else x
