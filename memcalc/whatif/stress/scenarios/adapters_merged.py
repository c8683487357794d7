"""Adapters are merged into their base to be saved: for each weight in turn the product of the two small matrices, as large as the weight, and scaled.

Source: peft/tuners/lora/layer.py, ``Linear.get_delta_weight`` and ``merge``; ``safe_merge`` keeps a copy of the weight and looks whether it is finite.
"""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.units import DTYPE_BYTES
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "checkpoint"


def incidents(s: Situation) -> Iterator[Incident]:
    """Of the largest weight, merged as it is and safely."""
    run, title = s.job.run, "adapters merged into the base"
    if run.lora is None:
        yield s.spared("adapters-merged", title, "the run trains no adapters")
        return
    adapted = [part.block for part in s.loaded.plan.parts if any("lora" in shard.path for shard in part.shards)]
    largest = max((_numel(weight.shape) for block in adapted for path, weight in block.module.weights("") if "lora" not in path), default=0)
    extra = {"weights/product of the adapters, and scaled": 2 * largest * DTYPE_BYTES[run.lora.dtype]}
    yield s.beside("adapters-merged/plain", title, "start", extra, source="2 * largest weight * adapter width")
    safe = extra | {"weights/copy of the weight": largest * DTYPE_BYTES[run.dtype], "weights/mask of what is finite": largest}
    yield s.beside("adapters-merged/safe", f"{title} with safe_merge", "start", safe, source="largest weight * (2 * adapter width + width + 1)")


def _numel(shape: tuple[object, ...]) -> int:
    count = 1
    for axis in shape:
        count *= int(getattr(axis, "size", 1))
    return count
