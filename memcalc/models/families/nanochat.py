"""nanochat: norms without weights, one of them before the layers, queries and keys normalised after they are turned, squared ReLU, capped logits.

Source: transformers, models/nanochat/modeling_nanochat.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, DecoderLayer, Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("nanochat",)
ARCHITECTURES = {"NanoChatForCausalLM": "nanochat"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and a network of two linear layers."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias", default=False)
    norm, head_norm = RMSNorm(sizes.hidden, "unscaled"), RMSNorm(Axis("head_dim", sizes.head_dim), "unscaled")
    rotary, tied = Rotary(sizes.head_dim), config.bool("tie_word_embeddings")
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm, rotary=rotary)
    mlp = MLP(
        up=Linear("fc1", sizes.hidden, sizes.intermediate, split="column"),
        down=Linear("fc2", sizes.intermediate, sizes.hidden, split="row"),
        activation=config.str("hidden_act"),
    )
    layer = DecoderLayer(norm, replace(attention, norm_after_rotary=True), norm, mlp)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied, norm=norm),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, softcap=config.optional_float("final_logit_softcapping")),
    )
