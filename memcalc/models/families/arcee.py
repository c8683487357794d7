"""Arcee's AFM and Jais 2: Llama's layer with a network of two linear layers and a squared ReLU; Jais 2 has LayerNorms and biases.

Source: transformers, models/arcee/modeling_arcee.py, models/jais2/modeling_jais2.py.
"""

from __future__ import annotations

from memcalc.components import MLP, DecoderLayer, LayerNorm, Linear, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("arcee", "jais2")
ARCHITECTURES = {"ArceeForCausalLM": "arcee", "Jais2ForCausalLM": "jais2"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention."""
    sizes = decoder.read_sizes(config)
    bias, mlp_bias = config.bool("attention_bias"), config.bool("mlp_bias")
    norm = LayerNorm(sizes.hidden) if config.model_type == "jais2" else RMSNorm(sizes.hidden)
    mlp = MLP(
        up=Linear("up_proj", sizes.hidden, sizes.intermediate, mlp_bias, "column"),
        down=Linear("down_proj", sizes.intermediate, sizes.hidden, mlp_bias, "row"),
        activation=config.str("hidden_act"),
    )
    layer = DecoderLayer(norm, decoder.attention(sizes, qkv_bias=bias, o_bias=bias), norm, mlp)
    return decoder.causal_lm(config, sizes, (Block("layers", layer, sizes.num_layers),), norm=norm)
