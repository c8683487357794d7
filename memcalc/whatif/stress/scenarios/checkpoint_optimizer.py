"""Optimizer states of all ranks gathered to be written as one.

Source: torch/distributed/checkpoint/state_dict.py, ``StateDictOptions(full_state_dict=True)``, whose ``cpu_offload`` is off unless asked for; FSDP1's own
``FullOptimStateDictConfig`` has it on.
"""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "checkpoint"


def incidents(s: Situation) -> Iterator[Incident]:
    """Every state of every rank, on the card unless it is offloaded as it comes."""
    title = "optimizer states of all ranks gathered on the card"
    own = sum(num_bytes for path, num_bytes in s.shots["start"].by_path.items() if path.startswith("optimizer/"))
    if s.shares == 1 or not own:
        why = "every rank holds all of them" if own else "they are not on the card"
        yield s.spared("checkpoint-optimizer", title, why)
        return
    extra = {"optimizer/states of all ranks": own * s.shares}
    yield s.beside("checkpoint-optimizer", title, "start", extra, note="offloaded to the CPU they go there one by one", source="states * ranks")
