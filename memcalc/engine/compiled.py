"""What ``torch.compile`` may change: a bound, since what inductor fuses is decided when it compiles.

It fuses what stands between matrix products, and keeps for backward what is cheapest to keep; products and attention are never run again
(torch/_functorch/partitioners.py, ``min_cut_rematerialization_partition``). So it saves no more than the modules as they are written, and hardly less
than modules whose kernels are fused by hand, Megatron-core's.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.engine.plan import Plan, make_plan
from memcalc.engine.ranks import blocks_of
from memcalc.engine.settings import settings_of
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.units import gib


def compile_notes(job: Job, plan: Plan) -> tuple[str, ...]:
    """The bound in words, for a run that is compiled; torchtune's layers and losses are counted as compiled ones keep things."""
    if job.run.code == "torchtune":
        return ()
    text = "torch_compile: counted as it runs without, which is an upper bound"
    if job.run.task != "train" or job.run.recompute == "full":
        return (f"{text}; kernels that are fused make fewer temporaries inside a layer",)
    written, fused = saved_bytes(plan), fused_bytes(job)
    if fused is None or fused >= written:
        return (text,)
    return (f"{text}: layers save {gib(written)} for backward; fused by hand, as Megatron-core's, they would save {gib(fused)}, which is near the least",)


def saved_bytes(plan: Plan) -> int:
    """What the layers of a rank save for backward."""
    return sum(int(part.profile.forward.net) * part.block.repeat for part in plan.parts if part.block.role == "layer")


def fused_bytes(job: Job) -> int | None:
    """What the same layers would save as Megatron-core's modules; None where it has none for them."""
    run = job.run
    if run.lora is not None or run.quantization is not None or run.prompt is not None:
        return None
    settings = replace(settings_of(job), code="megatron", dtype=run.autocast or run.dtype, autocast=None, attention="flash_attention_2", loss="cross_entropy")
    try:
        return saved_bytes(make_plan(job, blocks_of(job), settings, keep_gradients=False, accumulate=False))
    except InputError:
        return None
