"""What is worth a warning."""

from __future__ import annotations

import math

from memcalc.report.watch import warning
from memcalc.watch.alarms import Alarms


def test_a_reading_outside_the_band_is_said_once_states_are_there() -> None:
    alarms = Alarms({"start": 1000, "backward_peak": 2000}, band=0.05)
    assert alarms.of_memory({"start": 300, "backward_peak": 1300}, first=True) == []
    assert alarms.of_memory({"start": 1010, "backward_peak": 2050}) == []
    (found,) = alarms.of_memory({"start": 1010, "backward_peak": 2400})
    assert (found.kind, found.what) == ("band", "backward_peak")
    assert warning(found).startswith("backward peak is 0.00 MiB, 20% more")


def test_what_grows_between_steps_is_said() -> None:
    alarms = Alarms({})
    assert alarms.of_memory({"start": 1000, "backward_peak": 2000}) == []
    assert alarms.of_memory({"start": 1030, "backward_peak": 2000}) == []
    assert [one.kind for one in alarms.of_memory({"start": 1100, "backward_peak": 2000})] == ["growth"]
    assert alarms.of_memory({"start": 1100, "backward_peak": 2000}) == []


def test_a_statistic_that_jumps_is_said_before_memory_follows() -> None:
    alarms = Alarms({})
    for value in (1.0, 1.2, 0.9, 1.1, 1.0, 1.3):
        assert alarms.of_statistics("gradient norm", {"layers.0": value}) == []
    (jump,) = alarms.of_statistics("gradient norm", {"layers.0": 40.0})
    assert (jump.kind, jump.what, jump.expected) == ("jump", "gradient norm of layers.0", 1.05)
    (lost,) = alarms.of_statistics("gradient norm", {"layers.0": math.inf})
    assert lost.kind == "not finite"
    assert "layers.0 is not finite" in warning(lost)
