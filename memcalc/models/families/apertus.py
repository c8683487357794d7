"""Apertus: norms of each head, a network of two linear layers and xIELU, whose two slopes are learned; counted, not run.

Source: transformers, models/apertus/modeling_apertus.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("apertus",)
ARCHITECTURES = {"ApertusForCausalLM": "apertus"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    hidden, inner, norm, head_norm = sizes.hidden, sizes.intermediate, RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim))
    slopes = Parts((), counted.vectors(Axis("1", 1), "alpha_p", "alpha_n")) if config.str("hidden_act", default="xielu") == "xielu" else Parts()
    network = Parts((*counted.linears(hidden, inner, "up_proj"), *counted.linears(inner, hidden, "down_proj"), ("act_fn", slopes)))
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm)
    layer = Parts((("self_attn", attention), ("mlp", network), ("attention_layernorm", norm), ("feedforward_layernorm", norm)))
    return counted.model(config, sizes, (Block("layers", layer, sizes.num_layers),), what="xIELU", norm=norm)
