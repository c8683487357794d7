"""Adapters are merged into their base to be saved: for each weight in turn the product of the two small matrices, as large as the weight.

Source: peft/tuners/lora/layer.py, ``Linear.get_delta_weight`` and ``merge`` (``safe_merge`` keeps a copy of the weight, too).
"""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.units import DTYPE_BYTES
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "checkpoint"


def incidents(s: Situation) -> Iterator[Incident]:
    """The largest weight's delta and its copy."""
    run, title = s.job.run, "adapters merged into the base"
    if run.lora is None:
        yield s.spared("adapters-merged", title, "the run trains no adapters")
        return
    adapted = [part.block for part in s.loaded.plan.parts if any("lora" in shard.path for shard in part.shards)]
    largest = max((_numel(weight.shape) for block in adapted for path, weight in block.module.weights("") if "lora" not in path), default=0)
    extra = {"weights/product of the adapters": largest * DTYPE_BYTES[run.lora.dtype], "weights/copy of the weight": largest * DTYPE_BYTES[run.dtype]}
    yield s.beside("adapters-merged", title, "start", extra, source="largest weight * (adapter width + width)")


def _numel(shape: tuple[object, ...]) -> int:
    count = 1
    for axis in shape:
        count *= int(getattr(axis, "size", 1))
    return count
