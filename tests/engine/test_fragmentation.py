"""Lengths of samples that vary put a run that fits at risk where not much of its card is left."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.fragmentation import AT_RISK, NEAR
from memcalc.engine.result import Estimate
from memcalc.specs.read import read_run
from memcalc.units import GiB

RUN = {"model": "qwen2.5-0.5b", "seq_len": 1024, "micro_batch": 2}


def answer(room: float, **keys: Any) -> Estimate:
    """The run on a card of so many times what it needs."""
    need = estimate(read_run(**RUN, gpu="80GiB", **keys)).most_loaded.device_bytes
    return estimate(read_run(**RUN, gpu=f"{need * room / GiB:.4f}GiB", **keys))


def test_a_run_that_nearly_fills_its_card_is_at_risk() -> None:
    """Steps of other lengths reserve more; segments that grow do not."""
    found = answer(1.04)
    assert found.verdict is not None
    assert found.verdict.fits
    assert found.risk is not None
    assert found.risk.device_bytes > AT_RISK * found.verdict.capacity_bytes
    assert found.risk.expandable_bytes < found.risk.device_bytes


@pytest.mark.parametrize(
    ("room", "keys"),
    [
        (0.9, {}),  # it does not fit
        (1.02 / NEAR, {}),  # there is room
        (1.04, {"expandable_segments": True}),
        (1.04, {"packing": True}),  # every batch is as long
        (1.04, {"task": "inference"}),
    ],
)
def test_others_are_not(room: float, keys: dict[str, Any]) -> None:
    assert answer(room, **keys).risk is None
