"""OPT: learned positions, LayerNorm, ReLU; the 350M normalises after each branch and has a narrower table.

Source: transformers, models/opt/modeling_opt.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, DecoderLayer, Embedding, Head, LayerNorm, Linear, PostNormLayer
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("opt",)
ARCHITECTURES = {"OPTForCausalLM": "opt"}

OFFSET = 2
"""The position table has two more rows than there are positions (OPTLearnedPositionalEmbedding)."""


def spec(config: Config) -> ModelSpec:
    """Multi-head attention of scaled queries and a network of two linear layers."""
    hidden, heads = config.int("hidden_size"), config.int("num_attention_heads")
    sizes = text.axes(
        hidden=hidden,
        intermediate=config.int("ffn_dim"),
        vocab=config.int("vocab_size"),
        layers=config.int("num_hidden_layers"),
        heads=heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )
    if not config.bool("layer_norm_elementwise_affine", default=True):
        raise config.error("layer_norm_elementwise_affine false is not known to memcalc")
    bias, dropout = config.bool("enable_bias", default=True), config.float("dropout", default=0.1)
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias)
    attention = replace(
        attention,
        o=replace(attention.o, name="out_proj"),
        rotary=None,
        scaled_query=True,
        dropout=config.float("attention_dropout", default=0.0),
    )
    mlp = MLP(
        up=Linear("fc1", sizes.hidden, sizes.intermediate, bias, "column"),
        down=Linear("fc2", sizes.intermediate, sizes.hidden, bias, "row"),
        activation=config.str("activation_function", default="relu"),
    )
    norm, before = LayerNorm(sizes.hidden), config.bool("do_layer_norm_before", default=True)
    layer = DecoderLayer(norm, attention, norm, mlp, dropout=dropout, inlined=True) if before else PostNormLayer(attention, norm, mlp, norm, dropout=dropout)
    width = Axis("word_embed_proj_dim", config.optional_int("word_embed_proj_dim", default=None) or hidden)
    is_narrow = width.size != hidden
    tied = config.bool("tie_word_embeddings", default=True)
    embedding = Embedding(
        sizes.vocab,
        width,
        positions=config.int("max_position_embeddings") + OFFSET,
        reserved_positions=OFFSET,
        tied=tied,
        project=Linear("project_in", width, sizes.hidden) if is_narrow else None,
        style="opt",
    )
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=embedding,
        norm=norm if before and not config.bool("_remove_final_layer_norm", default=False) else None,
        after=(Block("project_out", Linear("project_out", sizes.hidden, width), role="norm"),) if is_narrow else (),
        head=Head(Linear("lm_head", width, sizes.vocab, split="column"), tied=tied),
        names=("embed_tokens", "final_layer_norm", "lm_head"),
        buffer_bytes=0,
    )
