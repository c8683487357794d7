"""What a run was seen to take where nothing can be derived: context, libraries, fragmentation. A file that `memcalc.watch` writes and estimates use."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from memcalc.engine.result import Estimate, RankEstimate, Reservation, Term
from memcalc.errors import InputError

VERSION = 1
SOURCE = "measured: memcalc.watch"


class Calibration(NamedTuple):
    """Readings of a run, in bytes.

    Attributes:
        device: the card's name.
        steps: how many were read.
        outside_bytes: on the card and not of torch's allocator (context, libraries' own memory, communicators): all that was used, less what was
            reserved. Other processes of the card count, too.
        held_bytes: reserved beyond what was allocated, at the highest peak.
        unexplained_bytes: allocated beyond the estimate at its peak instant, workspaces among it; negative where it was less. None without an estimate.
    """

    device: str
    steps: int
    outside_bytes: int
    held_bytes: int
    unexplained_bytes: int | None = None

    def write(self, path: str | os.PathLike[str]) -> None:
        """To a file of a few lines."""
        Path(path).write_text(json.dumps({"memcalc_calibration": VERSION, **self._asdict()}, indent=1) + "\n", encoding="utf-8")


def read_calibration(path: str) -> Calibration:
    """The readings of a file.

    Raises:
        InputError: it is not one that `memcalc.watch` wrote.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=path) from None
    if not isinstance(data, dict) or data.get("memcalc_calibration") != VERSION:
        raise InputError(f"is no calibration of memcalc.watch: memcalc_calibration {VERSION} was expected", where=path)
    numbers: dict[str, Any] = {key: data.get(key) for key in ("steps", "outside_bytes", "held_bytes")}
    wrong = [key for key, value in numbers.items() if not isinstance(value, int) or isinstance(value, bool) or value < 0]
    if wrong:
        raise InputError(f"{wrong[0]} is {numbers[wrong[0]]!r}: a whole number of bytes was expected", where=path)
    unexplained = data.get("unexplained_bytes")
    return Calibration(str(data.get("device", "")), **numbers, unexplained_bytes=unexplained if isinstance(unexplained, int) else None)


def calibrated(estimate: Estimate, found: Calibration) -> Estimate:
    """The estimate with what was measured in the place of what cannot be derived; allocated bytes stay as they are."""
    ranks = tuple(_rank(rank, found) for rank in estimate.ranks)
    verdict = estimate.verdict
    if verdict is not None:
        verdict = replace(verdict, device_bytes=ranks[0].device_bytes)
    note = f"context, libraries and fragmentation as measured on {found.device or 'a card'} over {found.steps} steps"
    return replace(estimate, ranks=ranks, verdict=verdict, notes=(*estimate.notes, note))


def _rank(rank: RankEstimate, found: Calibration) -> RankEstimate:
    inputs: dict[str, Any] = {"steps": found.steps}
    held = Reservation((Term("reserved/held between blocks", found.held_bytes, "reserved - allocated at the peak", inputs, SOURCE),))
    outside = (Term("device/outside the allocator", found.outside_bytes, "used on the card - reserved", inputs, SOURCE),)
    return replace(rank, reserve=lambda: held, device=outside)
