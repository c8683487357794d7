"""Granite 3 with experts: Granite's scaled residuals, embeddings and logits, a softmax over the chosen experts only.

Source: transformers, models/granitemoe/modeling_granitemoe.py, models/granitemoeshared/modeling_granitemoeshared.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, GatedMLP, Head, Linear, RMSNorm, Rotary
from memcalc.components.moe import MoE, TopKRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("granitemoe", "granitemoeshared")
ARCHITECTURES = {"GraniteMoeForCausalLM": "granitemoe", "GraniteMoeSharedForCausalLM": "granitemoeshared"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts, and may have a network that all tokens share; scores are of the chosen logits in float32."""
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_local_experts", "num_experts")
    norm, bias, rotary = RMSNorm(sizes.hidden), config.bool("attention_bias", default=False), Rotary(sizes.head_dim)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias),
        post_attention_layernorm=norm,
        mlp=MoE(
            gate=TopKRouter("router", sizes.hidden, count, moe.choose(config, count, "num_experts_per_tok"), wide=True),
            experts=moe.experts(config, sizes.hidden, sizes.intermediate, count),
            shared=shared(config, sizes) if config.int("shared_intermediate_size", default=0, minimum=0) else None,
            shared_name="shared_mlp",
        ),
        scaled=True,
    )
    tied = config.bool("tie_word_embeddings")
    whole = text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, scaled=True, tied=tied),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, scaled=True),
    )
    return moe.with_active(whole)


def shared(config: Config, sizes: decoder.Sizes) -> GatedMLP:
    """The network beside the experts, its gate and up in one projection."""
    inner = moe.axis(config, "shared_intermediate_size")
    return GatedMLP(
        gate=Linear("input_linear", sizes.hidden, Axis("2 * shared_intermediate_size", 2 * inner.size), split="column"),
        up=None,
        down=Linear("output_linear", inner, sizes.hidden, split="row"),
        activation=config.str("hidden_act"),
    )
