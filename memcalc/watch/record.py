"""What is logged of a step."""

from __future__ import annotations

from typing import Any, NamedTuple

from memcalc.watch.alarms import Alarm


class Reading(NamedTuple):
    """One instant.

    Attributes:
        name: as the estimate calls it.
        bytes: in tensors: at that moment, or at most since the one before, as the instant is meant.
        reserved_bytes: by the allocator, at most until then.
        estimate_bytes: what the estimate says; None without one.
    """

    name: str
    bytes: int
    reserved_bytes: int
    estimate_bytes: int | None


class Record(NamedTuple):
    """One step.

    Attributes:
        step: its number, from 1.
        counter: what was read.
        readings: instants, in their order.
        gradient_norms, activation_maxima: by layer.
        warnings: what to look at.
    """

    step: int
    counter: str
    readings: tuple[Reading, ...]
    gradient_norms: dict[str, float]
    activation_maxima: dict[str, float]
    warnings: tuple[Alarm, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "step": self.step,
            "counter": self.counter,
            "instants": {r.name: {"bytes": r.bytes, "reserved_bytes": r.reserved_bytes, "estimate_bytes": r.estimate_bytes} for r in self.readings},
            "gradient_norm": self.gradient_norms,
            "activation_max": self.activation_maxima,
            "warnings": [warning._asdict() for warning in self.warnings],
        }
