"""Attention with sinks: a learned score for each head that takes part in the softmax and has no value (Xiao et al. 2023; gpt-oss)."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.attention import Attention
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Weight


@dataclass(frozen=True)
class SinkAttention(Attention):
    """Grouped-query attention with a sink for each head."""

    def own_weights(self) -> Iterator[Weight]:
        """``sinks`` (heads,)."""
        yield Weight("sinks", (Axis("num_attention_heads", self.num_heads),), (("column", 0),))
