"""GPT-J: one norm before attention and network in parallel; part of each head turned by angles from a table.

Source: transformers, models/gptj/modeling_gptj.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, Attention, Embedding, Head, LayerNorm, Linear, ParallelLayer, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.models.families.gpt2 import gpt_sizes
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("gptj",)
ARCHITECTURES = {"GPTJForCausalLM": "gptj"}


def spec(config: Config) -> ModelSpec:
    """Multi-head attention whose scores are computed in fp32, and a network of two linear layers."""
    sizes = gpt_sizes(config)
    rotary = Rotary(config.optional_int("rotary_dim", default=64) or sizes.head_dim, style="tabled", sliced=True, inlined=True)
    attention = decoder.attention(sizes, rotary=rotary)
    dropout = config.float("attn_pdrop", default=0.0)
    attention = replace(attention, o=replace(attention.o, name="out_proj"), softmax="scores", dropout=dropout)
    return table_model(config, sizes, attention, rotary)


def table_model(config: Config, sizes: decoder.Sizes, attention: Attention, rotary: Rotary) -> ModelSpec:
    """GPT-J or CodeGen around its attention; the table of angles is a buffer in fp32."""
    norm = LayerNorm(sizes.hidden)
    mlp = MLP(
        up=Linear("fc_in", sizes.hidden, sizes.intermediate, bias=True, split="column"),
        down=Linear("fc_out", sizes.intermediate, sizes.hidden, bias=True, split="row"),
        activation=config.str("activation_function", default="gelu_new"),
    )
    layer = ParallelLayer(norm, attention, mlp, dropout=config.float("resid_pdrop", default=0.0))
    tied, positions = config.bool("tie_word_embeddings", default=False), config.int("n_positions", "max_position_embeddings")
    return text.language_model(
        config,
        sizes,
        (Block("h", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied, dropout=config.float("embd_pdrop", default=0.0)),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, bias=True, split="column"), tied=tied),
        names=("wte", "ln_f", "lm_head"),
        buffer_bytes=positions * rotary.dim * 4,
        max_positions=("n_positions", "max_position_embeddings"),
    )
