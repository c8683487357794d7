"""Apertus: norms of each head, a network of two linear layers and xIELU.

Source: transformers, models/apertus/modeling_apertus.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, DecoderLayer, Linear, RMSNorm
from memcalc.components.xielu import XIELU, XIELUMLP
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("apertus",)
ARCHITECTURES = {"ApertusForCausalLM": "apertus"}
CONSTANTS = 2 * 2
"""Bytes of xIELU's ``beta`` and ``eps``, which are buffers, in bf16."""


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    norm, head_norm = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim))
    up, down = Linear("up_proj", sizes.hidden, sizes.intermediate, split="column"), Linear("down_proj", sizes.intermediate, sizes.hidden, split="row")
    activation = config.str("hidden_act", default="xielu")
    network = XIELUMLP(up, down, XIELU()) if activation == "xielu" else MLP(up, down, activation)
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm)
    model = decoder.causal_lm(config, sizes, (Block("layers", DecoderLayer(norm, attention, norm, network), sizes.num_layers),), norm=norm)
    return replace(model, buffer_bytes=model.buffer_bytes + CONSTANTS * sizes.num_layers) if activation == "xielu" else model
