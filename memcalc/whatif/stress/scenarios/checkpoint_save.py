"""A checkpoint as the engine saves it whole: FSDP's full state dict, the 16-bit weights that ZeRO-3 consolidates, Megatron's shards."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.units import DTYPE_BYTES
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "checkpoint"
FILE = {"stage3_gather_16bit_weights_on_model_save": True}


def incidents(s: Situation) -> Iterator[Incident]:
    """The engine's own way, and rank 0's copy on the host."""
    run = s.job.run
    keys: dict[str, object] = {"checkpoint_save": "full"}
    if s.job.engine == "deepspeed" and s.job.zero == 3 and run.sharding.deepspeed is None:
        keys["deepspeed"] = {
            "zero_optimization": {"stage": 3, **FILE},
            **({"fp16": {"enabled": True}} if run.dtype == "float16" else {"bf16": {"enabled": True}}),
        }
    found = s.instead("checkpoint-save", _title(s), keys, instant="checkpoint_save")
    if found.survives is None and "deepspeed" in keys:
        found = s.instead("checkpoint-save", _title(s), {"checkpoint_save": "full"}, instant="checkpoint_save")
    if found.survives is None or not s.shards_weights:
        yield found
        return
    yield found._replace(host_bytes=s.job.model.num_params * DTYPE_BYTES[run.dtype], note="rank 0 writes a copy of it from its host")


def _title(s: Situation) -> str:
    ways = {"fsdp1": "a full state dict on the card", "fsdp2": "a full state dict on the card", "deepspeed": "the engine's own save of whole weights"}
    return ways.get(s.job.engine, "the engine's own save")
