"""Multi-token prediction (DeepSeek-AI 2024, 2412.19437, section 2.2): modules that predict further tokens, before the head that all share."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.embedding import Embedding
from memcalc.components.head import Head
from memcalc.components.layer import Norm
from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component, Weight


@dataclass(frozen=True)
class PredictionModule(Component):
    """One further token: the hidden states and the next token's embedding, both normalised, are joined and go through one more layer.

    Attributes:
        enorm, hnorm: of the embedding, and of the hidden states.
        eh_proj: both side by side → hidden.
        layer: like the model's last.
        norm: on what comes out.
    """

    enorm: Norm
    hnorm: Norm
    eh_proj: Linear
    layer: Component
    norm: Norm


@dataclass(frozen=True)
class MultiTokenHead(Component):
    """Prediction modules, and the head for each of them and for the model itself.

    Attributes:
        modules: one for each further token.
        embedding: the model's table, which they use again.
        head: the projection to the vocabulary and the loss.
        has_table: the table is held here, too, since the model's own is on another rank.
    """

    modules: tuple[PredictionModule, ...]
    embedding: Embedding
    head: Head
    has_table: bool = False

    def weights(self, prefix: str = "") -> Iterator[tuple[str, Weight]]:
        """Those of the modules and the head, and of the table where it is held here and the head has none of its own."""
        for path, weight in super().weights(prefix):
            if self.has_table or not path.startswith(f"{prefix}embedding/"):
                yield path, weight
