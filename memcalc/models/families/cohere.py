"""Cohere's Command R and Aya: one norm before attention and network in parallel, in fp32; scaled logits of a shared table.

Source: transformers, models/cohere/modeling_cohere.py.
"""

from __future__ import annotations

from memcalc.components import Embedding, Head, LayerNorm, Linear, ParallelLayer, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("cohere",)
ARCHITECTURES = {"CohereForCausalLM": "cohere"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and SwiGLU; neighbouring elements of queries and keys are turned in fp32."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    rotary = Rotary(sizes.head_dim, style="interleaved", precision="all")
    q_norm = k_norm = None
    if config.bool("use_qk_norm", default=False):
        dim = Axis("head_dim", sizes.head_dim)
        q_norm = LayerNorm(dim, bias=False, style="fp32", heads=Axis("num_attention_heads", sizes.num_heads))
        k_norm = LayerNorm(dim, bias=False, style="fp32", heads=Axis("num_key_value_heads", sizes.num_kv_heads))
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=q_norm, k_norm=k_norm, rotary=rotary)
    layer = ParallelLayer(norm_of(sizes), attention, decoder.gated_mlp(sizes, config.str("hidden_act", default="silu")))
    return command_model(config, sizes, (Block("layers", layer, sizes.num_layers),), rotary)


def norm_of(sizes: decoder.Sizes) -> LayerNorm:
    """The norm of Cohere's layers."""
    return LayerNorm(sizes.hidden, bias=False, style="fp32")


def command_model(config: Config, sizes: decoder.Sizes, layers: tuple[Block, ...], rotary: Rotary) -> ModelSpec:
    """The ends of Command R and R7B around their layers."""
    tied = config.bool("tie_word_embeddings", default=True)
    return text.language_model(
        config,
        sizes,
        layers,
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied),
        norm=norm_of(sizes),
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, scaled=True),
    )
