"""Phi-3.5-MoE: LayerNorms, biases in attention and head, and two experts drawn by SparseMixer.

Source: transformers, models/phimoe/modeling_phimoe.py. Jitter on the router's input (``input_jitter_noise``, off in the released model) is
left out.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, Head, LayerNorm, Linear, Rotary
from memcalc.components.moe import MoE, SparseMixerRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("phimoe",)
ARCHITECTURES = {"PhimoeForCausalLM": "phimoe", "PhiMoEForCausalLM": "phimoe"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts; the router always picks two.

    Raises:
        ModelError: another number of experts per token, for which the code's router does not provide.
    """
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_local_experts", "num_experts")
    top_k = moe.choose(config, count, "num_experts_per_tok")
    if top_k != 2:
        raise config.error(f"num_experts_per_tok is {top_k}; the router of this model picks two")
    norm, bias, rotary = LayerNorm(sizes.hidden), config.bool("attention_bias", default=False), Rotary(sizes.head_dim)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias, window=config.optional_int("sliding_window", default=None)),
        post_attention_layernorm=norm,
        mlp=MoE(
            gate=SparseMixerRouter("router", sizes.hidden, count, top_k),
            experts=moe.experts(config, sizes.hidden, sizes.intermediate, count),
        ),
    )
    tied = config.bool("tie_word_embeddings", default=False)
    lm_head = Linear("lm_head", sizes.hidden, sizes.vocab, config.bool("lm_head_bias", default=False), "column")
    whole = text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied),
        norm=norm,
        head=Head(lm_head, tied=tied),
    )
    return moe.with_active(whole)
