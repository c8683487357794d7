"""What a run may ask its card for in one piece: the tensors that its blocks were recorded with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from memcalc.engine.estimate import shape_formula
from memcalc.engine.walk import Walked
from memcalc.tape.tensor import Record
from memcalc.units import DTYPE_BYTES

ALONG_THE_SEQUENCE = ("seq_len", "keys", "tokens", "rows")
"""What the names of axes hold that grow with the length of a sequence."""


class Request(NamedTuple):
    """A tensor that a run makes or may make.

    Attributes:
        name: what it is.
        bytes: how many.
        formula, inputs: in names, and the numbers put in.
        where: names of `memcalc.whatif.diagnose.position`, or instants, in which it is asked for.
        power: how it grows with the length of a sequence: 0 not at all, 1 in proportion, 2 as its square.
        supposed: it is not in the run as asked, but in one that differs (a kernel that falls back).
    """

    name: str
    bytes: int
    formula: str
    inputs: dict[str, Any]
    where: tuple[str, ...]
    power: int = 0
    supposed: bool = False


def recorded(walked: Walked) -> Iterator[Request]:
    """Every tensor that the blocks of a rank make, each once for its size."""
    for part in walked.plan.parts:
        for instant, span in (("forward_peak", part.profile.forward), ("backward_peak", part.profile.backward)):
            seen = set()
            for sign, record in span.events:
                if sign > 0 and record.num_bytes and (record.path, record.num_bytes) not in seen:
                    seen.add((record.path, record.num_bytes))
                    where = (instant, "loss") if part.block.role == "head" else (instant,)
                    yield _request(record, where)


def _request(record: Record, where: tuple[str, ...]) -> Request:
    inputs: dict[str, Any] = {axis.name: axis.size for axis in record.shape}
    power = sum(any(word in axis.name for word in ALONG_THE_SEQUENCE) for axis in record.shape)
    name = record.path.removeprefix("activations/").replace("/", " ")
    return Request(name, record.num_bytes, shape_formula(record), inputs | {record.dtype: DTYPE_BYTES[record.dtype]}, where, power)
