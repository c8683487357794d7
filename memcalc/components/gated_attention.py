"""Attention whose output is gated (Qwen3-Next, Qwen3.5)."""

from __future__ import annotations

from memcalc.components.attention import Attention
from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class GatedAttention(Attention):
    """Grouped-query attention; `q` gives a query and a gate for each head, and what the heads give is multiplied by the gate's sigmoid."""
