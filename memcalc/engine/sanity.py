"""The closed form that everyone knows, to stand beside the counted tensors."""

from __future__ import annotations

from memcalc.engine.ranks import num_layers, num_micro_batches
from memcalc.engine.result import Term
from memcalc.formulas.activations import layer_bytes, rule_of_thumb_bytes
from memcalc.formulas.pipeline import interleaving_factor
from memcalc.specs.job import Job

SOURCE = "Korthikanti et al. 2022 (2205.05198), table 2: layers with LayerNorm, GELU and dropout, their kernels fused"


def sanity_of(job: Job) -> tuple[Term, ...]:
    """What the layers of the first stage save by the rule of 34 bytes a token and unit of hidden size; nothing for inference."""
    model, mesh, run = job.model, job.mesh, job.run
    layers = num_layers(model)
    if run.task != "train" or not model.hidden_size or not layers:
        return ()
    unfused = run.attention == "eager" and run.recompute == "none"
    recompute = "full" if run.recompute == "full" else "none" if unfused else "selective"
    each = layer_bytes(
        seq_len=job.seq_len // mesh.cp,
        micro_batch=job.micro_batch,
        hidden_size=model.hidden_size,
        num_heads=model.num_heads,
        tp=mesh.tp,
        sequence_parallel=mesh.sp,
        recompute=recompute,  # type: ignore[arg-type]
    )
    filled = min(1.0, num_micro_batches(job) / mesh.pp) * interleaving_factor(pp=mesh.pp, vpp=mesh.vpp)
    core = " + 5 * a * s^2 * b / tp" if unfused else ""
    rule = "2 * s * b * h" if recompute == "full" else "34 * s * b * h / tp" if mesh.sp or mesh.tp == 1 else "s * b * h * (10 + 24 / tp)"
    rule = f"({rule}{core})" if core else rule
    in_flight = "" if mesh.pp == 1 else " * micro-batches in flight / pp"
    closed = Term("activations of layers by the closed form", round(each * layers * filled), f"{rule} * layers{in_flight}", {"layers": layers}, SOURCE)
    if recompute == "full" or mesh.pp > 1:
        return (closed,)
    low, high = rule_of_thumb_bytes(seq_len=job.seq_len, micro_batch=job.micro_batch, hidden_size=model.hidden_size, num_layers=layers)
    inputs = {"layers": layers, "low_bytes": low, "high_bytes": high}
    return (closed, Term("activations of layers by the rule of thumb, up to", high, "34 to 40 * s * b * h * layers, on one card", inputs, SOURCE))
