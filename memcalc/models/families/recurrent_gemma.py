"""RecurrentGemma, Griffin (De et al. 2024): gated linear recurrences, and attention with a window in every third layer; counted, not run.

Source: transformers, models/recurrent_gemma/modeling_recurrent_gemma.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Axis, Component, ModelSpec, Weight

MODEL_TYPES = ("recurrent_gemma",)
ARCHITECTURES = {"RecurrentGemmaForCausalLM": "recurrent_gemma"}

KERNEL_KEY = "conv1d_width"


def spec(config: Config) -> ModelSpec:
    """Kinds of layers repeat as ``block_types`` says; the networks are half as wide as ``intermediate_size``."""
    wide = config.int("intermediate_size")
    if wide % 2:
        raise config.error(f"intermediate_size {wide} is odd; gate and up have half of it each")
    sizes = decoder.read_sizes(config, intermediate=wide // 2)
    hidden, inner, norm = sizes.hidden, sizes.intermediate, RMSNorm(sizes.hidden, "gemma")
    kinds = config.strs("block_types", "_block_types", default=("recurrent", "recurrent", "attention"))
    mixers = {"recurrent": recurrence(config, sizes), "attention": attention(config, sizes)}
    if not mixers.keys() >= set(kinds):
        raise config.error("block_types must name recurrent or attention")
    network = (*counted.linears(hidden, inner, "gate_proj", "up_proj", bias=True), *counted.linears(inner, hidden, "down_proj", bias=True))

    def layer(kind: str) -> Component:
        return Parts((("temporal_pre_norm", norm), ("temporal_block", mixers[kind]), ("channel_pre_norm", norm), ("mlp_block", Parts(network))))

    layers = decoder.layer_blocks((kinds[i % len(kinds)] for i in range(sizes.num_layers)), layer)
    return counted.model(config, sizes, layers, what="linear recurrences", norm=norm, names=("embed_tokens", "final_norm", "lm_head"))


def attention(config: Config, sizes: decoder.Sizes) -> Parts:
    """Attention with a window, whose output projection has a bias."""
    bias, hidden = config.bool("attention_bias", default=False), sizes.hidden
    keys = counted.linears(hidden, sizes.keys, "k_proj", "v_proj", bias=bias)
    return Parts((*counted.linears(hidden, sizes.queries, "q_proj", bias=bias), *keys, *counted.linears(sizes.queries, hidden, "o_proj", bias=True)))


def recurrence(config: Config, sizes: decoder.Sizes) -> Parts:
    """Two branches, one through a convolution and the recurrence, whose gates have a matrix for each head."""
    hidden, width = sizes.hidden, Axis("lru_width", config.optional_int("lru_width", default=None) or sizes.hidden.size)
    heads, one, each = Axis("num_attention_heads", sizes.num_heads), Axis("1", 1), Axis("block_width", width.size // sizes.num_heads)
    gates = tuple(
        Weight(f"{name}_gate_{kind}", (heads, each, each)[: 3 if kind == "weight" else 2]) for name in ("input", "recurrent") for kind in ("weight", "bias")
    )
    conv = Parts((), (Weight("weight", (width, one, Axis(KERNEL_KEY, config.int(KERNEL_KEY)))), Weight("bias", (width,))))
    lru = Parts((), (*counted.vectors(width, "recurrent_param"), *gates))
    into, out = counted.linears(hidden, width, "linear_y", "linear_x", bias=True), counted.linears(width, hidden, "linear_out", bias=True)
    return Parts((*into, *out, ("conv_1d", conv), ("rg_lru", lru)))
