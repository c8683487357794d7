"""Norms: transformers' RMSNorms are written out in elementwise operators; most LayerNorms are one kernel."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers import liger
from memcalc.components import LayerNorm, RMSNorm
from memcalc.tape import functional as F
from memcalc.tape.tensor import Axis, Tensor


@runs(RMSNorm)
def rms_norm(ctx: Context, m: RMSNorm, x: Tensor) -> Tensor:
    """Saves the fp32 copy of x, its reciprocal root mean square, and both factors of the last product.

    LlamaRMSNorm.forward casts down before that product, Olmo2RMSNorm.forward and HeliumRMSNorm.forward after it; GemmaRMSNorm.forward multiplies by 1 + weight.
    """
    weights = [ctx.parameter(w) for w in m.own_weights()]
    if weights and liger.has_norm(ctx):
        return liger.rms_norm(ctx, x, weights[0])
    wide = F.cast(x, "float32", "input in fp32")
    variance = F.mean(F.pow2(wide), "variance")
    inverse = F.rsqrt(F.add_scalar(variance, "variance + eps"), "inverse root mean square")
    normal = F.mul(wide, inverse, "normalised in fp32")
    del wide
    if m.style == "llama":
        return F.mul(F.cast(normal, x.dtype, "normalised"), weights[0], "output")
    if m.style == "unscaled":
        return F.cast(normal, x.dtype, "output")
    factor = weights[0] if m.style == "fp32_scale" else F.cast(weights[0], "float32", "weight in fp32")
    if m.style == "gemma":
        del variance, inverse
        normal = F.mul(normal, F.add_scalar(factor, "1 + weight"), "output in fp32")
        del factor
        return F.cast(normal, x.dtype, "output")
    return F.cast(F.mul(normal, factor, "output in fp32"), x.dtype, "output")


@runs(LayerNorm)
def layer_norm(ctx: Context, m: LayerNorm, x: Tensor) -> Tensor:
    """One kernel that saves x and the mean and reciprocal deviation of each row, unless the model's code has its own way."""
    weights = [ctx.parameter(w) for w in m.own_weights()]
    if m.modules:
        return each_head(m, x, weights)
    if m.style == "fp32":
        return written_out(x, weights[0])
    if m.style == "upcast":
        return F.cast(F.layer_norm(F.cast(x, "float32", "input in fp32"), [], "output in fp32"), x.dtype, "output")
    if m.style == "one_plus":
        weights[0] = F.add_scalar(weights[0], "1 + weight")
    elif m.bias and liger.has_layer_norm(ctx):
        return liger.layer_norm(x, weights)
    return F.layer_norm(x, weights, "output")


def written_out(x: Tensor, weight: Tensor) -> Tensor:
    """Operator by operator in fp32 (CohereLayerNorm.forward): saves the centred x twice, its reciprocal deviation and the normalised x."""
    wide = F.cast(x, "float32", "input in fp32")
    mean = F.mean(wide, "mean")
    variance = F.mean(F.pow2(F.sub(wide, mean, "centred")), "variance")
    wide = F.mul(F.sub(wide, mean, "centred again"), F.rsqrt(F.add_scalar(variance, "variance + eps"), "reciprocal deviation"), "normalised")
    wide = F.mul(wide, F.cast(weight, "float32", "weight in fp32"), "output in fp32")
    return F.cast(wide, x.dtype, "output")


def each_head(m: LayerNorm, x: Tensor, weights: list[Tensor]) -> Tensor:
    """One kernel for each head, on slices, put together again (StableLmLayerNormPerHead.forward); here all heads at once, whose sum is the same."""
    parts = F.split_last(x, (Axis("head_dim", x.shape[-1].size),))
    return F.cat((F.layer_norm(parts[0], weights, "output of each head"),), parts[0].shape[-1], "output")
