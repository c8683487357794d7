"""The end of a model that embeds texts: one vector for each."""

from __future__ import annotations

from typing import Literal

from memcalc.dataclass import dataclass
from memcalc.specs.model import Component

Kind = Literal["mean", "cls", "last"]


@dataclass(frozen=True)
class Pooling(Component):
    """A vector out of the hidden states of a text (sentence_transformers/models/Pooling.py).

    Attributes:
        kind: the ``mean`` of those of its tokens, or that of the first (``cls``) or of the ``last`` one.
    """

    kind: Kind = "mean"
