"""Towers that hear: counted, and passed by, since batches have no sounds."""

from __future__ import annotations

from memcalc.components.vision import Parts
from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class SoundParts(Parts):
    """Parts of a tower for sounds, under the names that they have in the model's code."""

    @property
    def needs_sounds(self) -> bool:
        """They run on sounds alone."""
        return True
