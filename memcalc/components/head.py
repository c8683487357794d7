"""The end of a language model: the projection to the vocabulary, with its loss."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component, Weight


@dataclass(frozen=True)
class Head(Component):
    """The projection to the vocabulary, and the loss on it.

    Attributes:
        proj: hidden → vocabulary.
        tied: its weight is the embedding's table, counted there.
        softcap: logits are squashed by tanh (Gemma 2).
        scaled: logits are multiplied by a constant (Cohere, Granite).
        scaled_input: hidden states are divided by a constant before the projection (MiniCPM).
    """

    proj: Linear
    tied: bool = False
    softcap: float | None = None
    scaled: bool = False
    scaled_input: bool = False

    def weights(self, prefix: str = "") -> Iterator[tuple[str, Weight]]:
        """Those of the projection; of a tied one its bias, and an adapter's."""
        found = list(super().weights(prefix))
        table = next((path for path, weight in found if weight.name == "weight"), None) if self.tied else None
        yield from (pair for pair in found if pair[0] != table)


@dataclass(frozen=True)
class MaskedHead(Component):
    """The head of an encoder that is trained to fill in masked tokens: a transform where there is one, the projection to the vocabulary, the loss.

    Attributes:
        dense: hidden → the table's width.
        norm: after the activation. Without both there is no transform (EuroBERT).
        proj: that width → vocabulary.
        activation: between dense and norm.
        tied: its weight is the embedding's table, counted there.
        upcast: the loss is taken of logits in fp32 (ModernBERT), not of the logits as they are (BERT).
        loose_bias: a bias beside the projection's own, which nothing uses (BERT and RoBERTa, untied).
    """

    dense: Linear | None
    norm: LayerNorm | None
    proj: Linear
    activation: str = "gelu"
    tied: bool = True
    upcast: bool = False
    loose_bias: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """``bias`` (vocabulary,), which takes no gradient."""
        if self.loose_bias:
            yield Weight("bias", (self.proj.outputs,), frozen=True)

    def weights(self, prefix: str = "") -> Iterator[tuple[str, Weight]]:
        """Those of its parts; of a tied projection its bias only."""
        tied = f"{prefix}{self.proj.name}/weight"
        yield from ((path, weight) for path, weight in super().weights(prefix) if not (self.tied and path == tied))
