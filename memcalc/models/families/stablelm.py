"""StableLM 2 and 3B: Llama's layer with LayerNorm and a quarter of each head turned; the 12B in parallel, with norms for each head.

Source: transformers, models/stablelm/modeling_stablelm.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, LayerNorm, ParallelLayer, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("stablelm",)
ARCHITECTURES = {"StableLmForCausalLM": "stablelm"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and SwiGLU."""
    sizes, dropout = decoder.read_sizes(config), config.float("hidden_dropout", default=0.0)
    rotary = Rotary(text.partial_rotary(config, sizes.head_dim, default=0.25), sliced=True, inlined=True)
    q_norm = k_norm = None
    if config.bool("qk_layernorm", default=False):
        dim = Axis("head_dim", sizes.head_dim)
        q_norm = LayerNorm(dim, bias=False, heads=Axis("num_attention_heads", sizes.num_heads), modules=True)
        k_norm = LayerNorm(dim, bias=False, heads=Axis("num_key_value_heads", sizes.num_kv_heads), modules=True)
    bias = config.bool("use_qkv_bias", default=False)
    attention = decoder.attention(sizes, qkv_bias=bias, q_norm=q_norm, k_norm=k_norm, rotary=rotary)
    attention = replace(attention, dropout=config.float("attention_dropout", default=0.0))
    norm, mlp = LayerNorm(sizes.hidden), decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"))
    layer = (
        ParallelLayer(norm, attention, mlp, dropout=dropout)
        if config.bool("use_parallel_residual", default=False)
        else DecoderLayer(norm, attention, norm, mlp, dropout=dropout, holds="normed and mixed")
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
    )
