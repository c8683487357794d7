"""Linear layers on bitsandbytes' weights (Fabric's BitsandbytesPrecision puts its layers in the place of ``nn.Linear``)."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers import quantized
from memcalc.components.quantized import QuantizedLinear
from memcalc.tape.tensor import Tensor


@runs(QuantizedLinear)
def bitsandbytes_linear(ctx: Context, m: QuantizedLinear, x: Tensor) -> Tensor:
    """As in transformers' models."""
    return quantized.quantized_linear(ctx, m, x)
