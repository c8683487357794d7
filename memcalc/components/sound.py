"""Towers that hear: counted, and passed by, since batches have no sounds; heads of the models that have one."""

from __future__ import annotations

from memcalc.components.head import Head
from memcalc.components.vision import Parts
from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class SoundParts(Parts):
    """Parts of a tower for sounds, under the names that they have in the model's code."""

    @property
    def needs_sounds(self) -> bool:
        """They run on sounds alone."""
        return True


@dataclass(frozen=True)
class WholeHead(Head):
    """A head of a model whose forward takes no ``logits_to_keep``: a prompt has logits of all its tokens."""


@dataclass(frozen=True)
class ShiftedHead(WholeHead):
    """Such a head whose loss is taken of the logits as they are, all but the last of each sequence copied (Qwen 2-Audio)."""
