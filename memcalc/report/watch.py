"""A watched step in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcalc.report import words
from memcalc.report.style import unit_for

if TYPE_CHECKING:
    from memcalc.watch.alarms import Alarm
    from memcalc.watch.record import Reading, Record


def lines(record: Record) -> list[str]:
    """A line of readings, one of statistics, one for each warning."""
    head = f"memcalc watch: step {record.step}: " + ", ".join(_reading(reading) for reading in record.readings)
    found = [head]
    if record.gradient_norms or record.activation_maxima:
        norm = sum(value * value for value in record.gradient_norms.values()) ** 0.5
        layer = max(record.activation_maxima, key=lambda name: record.activation_maxima[name], default="")
        most = f", activations up to {record.activation_maxima[layer]:.4g} (in {layer})" if layer else ""
        found.append(f"memcalc watch: step {record.step}: gradient norm {norm:.4g}{most}")
    return [*found, *(f"memcalc watch: warning: {warning(one)}" for one in record.warnings)]


def warning(found: Alarm) -> str:
    """One warning."""
    if found.kind == "band":
        less = "less" if found.value < found.expected else "more"
        share = abs(found.value - found.expected) / max(found.expected, 1)
        return f"{words.instant(found.what)} is {_bytes(found.value)}, {share:.0%} {less} than the estimate's {_bytes(found.expected)}"
    if found.kind == "growth":
        return f"what stays between steps has grown to {_bytes(found.value)} from {_bytes(found.expected)}: something is kept that should not be"
    if found.kind == "not finite":
        return f"{found.what} is not finite ({found.value}); it was about {found.expected:.4g}"
    return f"{found.what} jumps to {found.value:.4g} from about {found.expected:.4g}: memory may follow (an overflow, a long sample, a checkpoint)"


def _reading(reading: Reading) -> str:
    beside = "" if reading.estimate_bytes is None else f" (estimate {_bytes(reading.estimate_bytes)})"
    return f"{words.instant(reading.name)} {_bytes(reading.bytes)}{beside}"


def _bytes(num_bytes: float) -> str:
    return unit_for(num_bytes).full(num_bytes)
