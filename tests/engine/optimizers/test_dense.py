"""Every optimizer that runs without a card, against steps of its own code: five tensors, every allocation counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memcalc.engine.optimizers import Stepped, optimizer_for
from memcalc.engine.resolve import resolve
from memcalc.specs.job import Job
from memcalc.specs.run import Run

SHAPES = ((50, 64), (200, 64), (64,), (64, 300), (64,))
TRACED: dict[tuple[str, int, bool], tuple[int, int]] = {
    ("adafactor", 2, True): (3500, 308656),
    ("adafactor", 4, True): (3500, 155056),
    ("rmsprop", 2, True): (70676, 70656),
    ("rmsprop", 2, False): (70676, 38528),
    ("adagrad", 2, True): (70676, 141312),
    ("adagrad", 4, False): (141332, 77056),
    ("sgd", 2, True): (70656, 0),
    ("muon", 2, True): (70400, 131584),
    ("muon", 4, True): (140800, 169984),
    ("schedule_free_adamw", 2, True): (141312, 70656),
    ("schedule_free_adamw", 4, False): (282624, 77056),
    ("schedule_free_sgd", 4, True): (141312, 0),
    ("galore_adamw", 2, True): (42304, 105600),
    ("galore_adamw", 4, True): (115984, 211200),
    ("apollo_adamw", 4, True): (84620, 212404),
}
"""Name, bytes of an element, all tensors at once → bytes of states between steps, and the most that the second step allocates on top (torch 2.13,
transformers 5.24, schedulefree 1.4.1, galore_torch 1.0, apollo_torch 1.0.3; no projection is found in it)."""


def job(name: str, *, foreach: bool) -> Job:
    """What an optimizer looks at of a job."""
    found = resolve(Run.model_validate({"model": "llama-7b", "seq_len": 64, "optimizer": name, "optimizer_rank": 16, "momentum": 0.9 * (name == "sgd")}))
    return replace(found, foreach=foreach)


def tensors(name: str, width: int) -> list[Stepped]:
    """In the order of its groups; Muon takes matrices only."""
    shapes = [s for s in SHAPES if len(s) == 2] if name == "muon" else sorted(SHAPES, key=len) if name.startswith(("galore", "apollo")) else list(SHAPES)
    return [Stepped(str(i), s[0] * (*s, 1)[1], s, 1, width, is_hidden=len(s) == 2, is_target=len(s) == 2) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("case", TRACED, ids=lambda c: "-".join(map(str, c)))
def test_states_and_temporaries_agree_with_a_traced_step(case: tuple[Any, ...]) -> None:
    """States to 20 bytes of scalars; the step within a hundredth, which is means of rows and columns."""
    name, width, foreach = case
    optimizer, asked, stepped = optimizer_for(name), job(name, foreach=foreach), tensors(name, width)
    held = sum(part.bytes for t in stepped for part in optimizer.states(asked, t)) + optimizer.counter_bytes * len(stepped)
    needs = [need.bytes for need in optimizer.temporaries(asked, stepped) if need.name != "singular value decomposition"]
    assert held == pytest.approx(TRACED[case][0], abs=20)
    assert max(needs, default=0) == pytest.approx(TRACED[case][1], rel=0.01)
