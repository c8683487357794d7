"""Norms: ``torch.nn.RMSNorm``, which is one kernel on a GPU; on a CPU it is written out in fp32.

Source: aten/src/ATen/native/cuda/layer_norm_kernel.cu, _fused_rms_norm.
"""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import RMSNorm
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Tensor


@runs(RMSNorm)
def rms_norm(ctx: Context, m: RMSNorm, x: Tensor) -> Tensor:
    """x (…, width) → the same. Saves x and the fp32 reciprocal root mean square of each row."""
    params = [ctx.parameter(w) for w in m.own_weights()]
    out, inverse = like(x, "output"), x.tape.new(x.shape[:-1], "float32", "inverse root mean square")
    kinds = [(p.shape, p.dtype) for p in params]

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor, *rest: Tensor) -> tuple[Tensor | None, ...]:
        of_x = like(x, "gradient of norm") if wants[0] else None
        return (of_x, *(g.tape.new(*kind, "gradient of weight") if w else None for w, kind in zip(wants[1:], kinds, strict=True)))

    x.tape.record(out, (x, *params), (x, inverse, *params), backward)
    return out
