"""Causal convolutions, as PyTorch's own operators run them where the package causal-conv1d is absent."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components.conv import DepthwiseConv
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.tensor import Tensor


@runs(DepthwiseConv)
def depthwise_conv(ctx: Context, m: DepthwiseConv, x: Tensor) -> Tensor:
    """x (batch, channels, seq) → the same: padded on both sides, cut, activated (causal_conv1d_fn, the reference in modeling_mamba.py).

    In inference the last tokens of x are the layer's state (LinearAttentionLayer.update_conv_state), into whose buffer they are copied.
    """
    params = [ctx.parameter(w) for w in m.own_weights()]
    ctx.remember(F.view(x, (*x.shape[:2], Axis("conv_kernel", m.kernel))), "conv_state")
    dtype, x = x.dtype, F.cast(x, params[0].dtype)
    padded = Axis("seq_len + conv_kernel - 1", x.shape[-1].size + m.kernel - 1)
    out = F.narrow(scan.conv1d(x, params, padded), x.shape)
    return F.cast(apply_activation(out, m.activation) if m.activation else out, dtype)
