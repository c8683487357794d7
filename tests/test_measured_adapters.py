"""Adapters as PEFT's own comparison of them measured it, each read from its adapter_config.json. The facts stand in ``tests/data/measured_adapters.json``."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.importers import import_text
from memcalc.specs.read import Layer, merged

RUNS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "measured_adapters.json").read_text(encoding="utf-8"))["runs"]
TRAINING = Layer({"model": "llama-3.2-3b", "micro_batch": 4, "seq_len": 768, "hardware": {"gpu": "l40s-48g"}})


def answer_to(run: dict[str, Any]) -> Estimate:
    layers = [] if run["adapter"] is None else [import_text(json.dumps(run["adapter"])).layer]
    return estimate(merged([*layers, TRAINING]))


@pytest.fixture(scope="module")
def answers() -> dict[str, Estimate]:
    return {run["id"]: answer_to(run) for run in RUNS}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["id"])
def test_as_many_parameters_are_trained(run: dict[str, Any], answers: dict[str, Estimate]) -> None:
    assert answers[run["id"]].model.trainable_params == run["trainable"]


def test_what_is_reserved_is_as_measured(answers: dict[str, Estimate]) -> None:
    """The median within a hundredth, each within a twentieth: batches are as long as their longest answer, which is not stated."""
    errors = {run["id"]: (answers[run["id"]].most_loaded.reserved_bytes or 0) / run["reserved_bytes"] - 1 for run in RUNS}
    assert median(map(abs, errors.values())) < 0.01, errors
    assert max(map(abs, errors.values())) < 0.05, errors
