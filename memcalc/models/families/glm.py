"""GLM-4 9B: Llama's layer with fused gate and up, and half of each head turned in neighbouring pairs.

Source: transformers, models/glm/modeling_glm.py.
"""

from __future__ import annotations

from memcalc.components import Attention, DecoderLayer, Embedding, GatedMLP, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("glm",)
ARCHITECTURES = {"GlmForCausalLM": "glm"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm = RMSNorm(sizes.hidden)
    layer = DecoderLayer(norm, attention(config, sizes), norm, mlp(config, sizes))
    return model(config, sizes, layer)


def attention(config: Config, sizes: decoder.Sizes) -> Attention:
    """GLM's attention."""
    rotary = Rotary(text.partial_rotary(config, sizes.head_dim, default=0.5), style="repeated", sliced=True)
    return decoder.attention(sizes, qkv_bias=config.bool("attention_bias", default=True), rotary=rotary)


def mlp(config: Config, sizes: decoder.Sizes) -> GatedMLP:
    """GLM's network."""
    return GatedMLP(
        gate=Linear("gate_up_proj", sizes.hidden, Axis("2 * intermediate_size", 2 * sizes.intermediate.size), split="column"),
        up=None,
        down=Linear("down_proj", sizes.intermediate, sizes.hidden, split="row"),
        activation=config.str("hidden_act", default="silu"),
    )


def model(config: Config, sizes: decoder.Sizes, layer: DecoderLayer) -> ModelSpec:
    """The ends around equal layers."""
    assert isinstance(layer.self_attn, Attention)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=layer.self_attn.rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=RMSNorm(sizes.hidden),
    )
