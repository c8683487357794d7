"""Golden traces: real training steps of real models, allocations counted to the byte, kept as the facts that a test needs.

A file ``tests/data/traces_*.json`` is a list of cases: ``id``; ``config`` (the model's config.json); ``run`` (run-file keys, without the
model); ``num_params``; ``instants`` (bytes alive, by the contract's names).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.specs.run import Run

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Case:
    """One traced step."""

    id: str
    config: dict[str, Any]
    run: dict[str, Any]
    num_params: int
    instants: dict[str, int]

    def estimate(self, folder: Path) -> Estimate:
        """memcalc's answer to the same run."""
        folder.joinpath("config.json").write_text(json.dumps(self.config))
        return estimate(Run.model_validate({"model": str(folder), **self.run}))


def load_cases(name: str) -> list[Case]:
    """The cases of ``tests/data/traces_<name>.json``."""
    return [Case(**case) for case in json.loads((DATA / f"traces_{name}.json").read_text())]


def errors(case: Case, answer: Estimate) -> dict[str, float]:
    """Relative error of each instant of the case."""
    return {name: answer.instant(name).allocated_bytes / num_bytes - 1 for name, num_bytes in case.instants.items()}
