"""A loss scale that overflowed: gradients copied in fp32 to be unscaled or inspected, a skipped step that leaves them there, masters copied anew."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.units import ceil_div
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "precision"
STEP = "optimizer_step"
COPIES = (
    ("unscaled", "gradients copied in fp32 to be unscaled", "gradients/unscaled, in fp32"),
    ("masters", "fp32 masters copied again from 16-bit weights", "optimizer/master weights, copied again"),
)


def incidents(s: Situation) -> Iterator[Incident]:
    """Only fp16 scales its loss."""
    run = s.job.run
    if "float16" not in (run.dtype, run.autocast):
        yield s.spared("fp16-overflow", "the loss scale overflows", f"{run.autocast or run.dtype} has the range of fp32: no loss is scaled")
        return
    own = 4 * ceil_div(s.num_trainable, s.shares)
    for name, title, path in COPIES:
        if name == "masters" and run.dtype == "float32":
            yield s.spared(f"fp16-overflow/{name}", title, "weights are held in fp32: there are no masters beside them")
        elif s.steps_on_host:
            found = s.nothing(f"fp16-overflow/{name}", title, STEP, "the optimizer steps on the host: so does the copy")
            yield found._replace(host_bytes=own * s.ranks_of_node)
        else:
            yield s.beside(f"fp16-overflow/{name}", title, STEP, {path: own}, source="num_trainable / ranks * 4")
    yield s.instead(
        "fp16-overflow/skipped",
        "a skipped step whose gradients are not freed before the next",
        {"grad_accum": max(run.grad_accum, 2)},
        note="as under accumulation" if run.grad_accum == 1 else "gradients wait through every step of this run already",
    )
