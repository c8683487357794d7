"""BitNet b1.58: Llama's layer with one more norm inside each branch; counted, not run.

Source: transformers, models/bitnet/modeling_bitnet.py. Weights of three values are stored packed; see `quantization_config`.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("bitnet",)
ARCHITECTURES = {"BitNetForCausalLM": "bitnet", "BitnetForCausalLM": "bitnet"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and a gated squared ReLU."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    norm, inner = RMSNorm(sizes.hidden), RMSNorm(sizes.intermediate)
    attention = Parts((("", decoder.attention(sizes, qkv_bias=bias, o_bias=bias)), ("attn_sub_norm", norm)))
    network = Parts((("", decoder.gated_mlp(sizes, config.str("hidden_act", default="relu2"))), ("ffn_sub_norm", inner)))
    layer = Parts((("self_attn", attention), ("mlp", network), ("input_layernorm", norm), ("post_attention_layernorm", norm)))
    return counted.model(config, sizes, (Block("layers", layer, sizes.num_layers),), what="norms inside the branches", norm=norm)
