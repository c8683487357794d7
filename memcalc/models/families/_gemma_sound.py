"""The conformer that Gemma 3n and Gemma 4 hear with, in parts (the Universal Speech Model's, Zhang et al. 2023)."""

from __future__ import annotations

from memcalc.components import LayerNorm, RMSNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families._sound import Named
from memcalc.specs.model import Axis, Weight

SIDE = Axis("kernel", 3)

STRIDES = 4
"""Two convolutions, each of which halves the bands."""


def subsample(hidden: Axis, channels: tuple[int, ...], bands: int, *, names: tuple[str, str]) -> tuple[Named, ...]:
    """Two convolutions over time and bands, each with a norm without bias, and a projection.

    Args:
        hidden: the tower's width.
        channels: of both.
        bands: of frequencies.
        names: of both.
    """
    found: list[Named] = []
    before = Axis("1", 1)
    for name, count in zip(names, channels, strict=True):
        after = Axis("channels", count)
        conv = Parts((), (Weight("weight", (after, before, SIDE, SIDE)),))
        found.append((name, Parts((("conv", conv), ("norm", LayerNorm(after, bias=False))))))
        before = after
    return (*found, *counted.linears(Axis("channels * bands", channels[1] * bands // STRIDES), hidden, "input_proj_linear"))


def conformer(part: Config, hidden: Axis, *, heads: int, kernel: int, four: bool = False) -> tuple[Named, ...]:
    """A layer: half a network, attention with relative positions, a convolution, half a network.

    Args:
        part: the tower's object.
        hidden: its width.
        heads: of attention.
        kernel: of the convolution.
        four: with Gemma 4's names.

    Raises:
        ModelError: the heads do not share the width.
    """
    if hidden.size % heads:
        raise part.error(f"the hidden size {hidden.size} of the tower for sounds is not a multiple of its {heads} heads")
    norm, twice = RMSNorm(hidden), Axis("2 * hidden_size", 2 * hidden.size)
    scale = (Weight("per_dim_scale", (Axis("head_dim", hidden.size // heads),)),)
    projections = counted.linears(hidden, hidden, "q_proj", "k_proj", "v_proj")
    depthwise = Parts((), (Weight("weight", (hidden, Axis("1", 1), Axis("kernel", kernel))),))
    mixed = (*counted.linears(hidden, twice, "linear_start"), ("depthwise_conv1d", depthwise), *counted.linears(hidden, hidden, "linear_end"))
    conv = ("lconv1d", Parts((("pre_layer_norm", norm), *mixed, ("conv_norm", norm))))
    if four:
        attention = Parts((*projections, *counted.linears(hidden, hidden, "post", "relative_k_proj")), scale)
        norms = (("norm_pre_attn", norm), ("norm_post_attn", norm), ("norm_out", norm))
        return (("feed_forward1", network(hidden)), ("feed_forward2", network(hidden)), ("self_attn", attention), conv, *norms)
    inner = Parts((*projections, counted.within("relative_position_embedding", *counted.linears(hidden, hidden, "pos_proj"))), scale)
    attention = Parts((("pre_attn_norm", norm), ("attn", inner), *counted.linears(hidden, hidden, "post"), ("post_norm", norm)))
    return (("ffw_layer_start", network(hidden)), ("attention", attention), conv, ("ffw_layer_end", network(hidden)), ("norm", norm))


def network(hidden: Axis) -> Parts:
    """Four times as wide inside, between two norms."""
    norm, inner = RMSNorm(hidden), Axis("4 * hidden_size", 4 * hidden.size)
    layers = (*counted.linears(hidden, inner, "ffw_layer_1"), *counted.linears(inner, hidden, "ffw_layer_2"))
    return Parts((("pre_layer_norm", norm), *layers, ("post_layer_norm", norm)))
