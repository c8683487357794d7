"""Where records go: stdout, a file of JSON lines, TensorBoard."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Protocol, TextIO

from memcalc.errors import extra
from memcalc.report.watch import lines
from memcalc.watch.record import Record


class Sink(Protocol):
    """Takes records."""

    def write(self, record: Record) -> None:
        """One step."""

    def close(self) -> None:
        """No more come."""


class Stdout:
    """A few lines a step.

    Args:
        file: another stream.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file

    def write(self, record: Record) -> None:
        """One step."""
        print(*lines(record), sep="\n", file=self.file or sys.stdout, flush=True)

    def close(self) -> None:
        """Nothing to close."""


class JsonLines:
    """A JSON object a step, written as it comes.

    Args:
        path: the file; it is made anew.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 (closed when training ends)

    def write(self, record: Record) -> None:
        """One step; what is no number is null."""
        self._file.write(json.dumps(_finite(record.as_dict()), ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoard:
    """Scalars under ``memcalc/``.

    Args:
        folder: of the run.

    Raises:
        MissingExtraError: tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        with extra("watch", "a TensorBoard log"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(str(folder))

    def write(self, record: Record) -> None:
        """One step."""
        for reading in record.readings:
            self._writer.add_scalar(f"memcalc/bytes/{reading.name}", reading.bytes, record.step)
            if reading.estimate_bytes is not None:
                self._writer.add_scalar(f"memcalc/estimate/{reading.name}", reading.estimate_bytes, record.step)
        for kind, values in (("gradient_norm", record.gradient_norms), ("activation_max", record.activation_maxima)):
            for layer, value in values.items():
                self._writer.add_scalar(f"memcalc/{kind}/{layer}", value, record.step)

    def close(self) -> None:
        """Flushes."""
        self._writer.close()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
