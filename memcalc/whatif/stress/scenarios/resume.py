"""A run is taken up again: states come from a file beside the model, before any gradient is there.

Source: transformers/trainer.py, ``_load_optimizer_and_scheduler``: under several processes the file is mapped to the card.
"""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "schedule"


def incidents(s: Situation) -> Iterator[Incident]:
    """Loaded states beside those that they replace, at most: an upper bound."""
    states = sum(n for path, n in s.shots["start"].by_path.items() if path.startswith("optimizer/"))
    extra = {"optimizer/states from the file": states} if states else {}
    yield s.beside(
        "resume", "resumed: states loaded beside the model", "start", extra, note="an upper bound: mapped to the host they take nothing", source="states"
    )
