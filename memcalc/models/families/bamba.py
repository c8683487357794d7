"""Bamba: Llama's layers with Mamba-2 in the place of attention in most of them.

Source: transformers, models/bamba/modeling_bamba.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _recurrent as recurrent
from memcalc.models.families import _text as text
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("bamba",)
ARCHITECTURES = {"BambaForCausalLM": "bamba"}


def spec(config: Config) -> ModelSpec:
    """Attention in the layers that the file lists, half of each head turned whatever the file says; a gated network in every layer."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias")
    norm, rotary = RMSNorm(sizes.hidden), Rotary(sizes.head_dim // 2, sliced=True)
    mixer, attention = recurrent.mamba_mixer(config, sizes.hidden), decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary)
    mlp = decoder.gated_mlp(sizes, config.str("hidden_act"), bias=config.bool("mlp_bias"))
    listed = config.ints("attn_layer_indices", default=())
    return text.language_model(
        config,
        sizes,
        decoder.layer_blocks((i in listed for i in range(sizes.num_layers)), lambda attends: DecoderLayer(norm, attention if attends else mixer, norm, mlp)),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings")),
        norm=norm,
        names=("embed_tokens", "final_layernorm", "lm_head"),
    )
