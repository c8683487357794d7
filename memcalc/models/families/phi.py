"""Phi 1, 1.5 and 2: one norm before attention and network in parallel, part of each head turned, biases everywhere.

Source: transformers, models/phi/modeling_phi.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, Embedding, Head, LayerNorm, Linear, ParallelLayer, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("phi",)
ARCHITECTURES = {"PhiForCausalLM": "phi"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and a network of two linear layers."""
    sizes = decoder.read_sizes(config)
    rotary = Rotary(text.partial_rotary(config, sizes.head_dim, default=0.5), sliced=True, inlined=True)
    head_norm = LayerNorm(Axis("head_dim", sizes.head_dim)) if config.bool("qk_layernorm", default=False) else None
    attention = decoder.attention(sizes, qkv_bias=True, o_bias=True, q_norm=head_norm, k_norm=head_norm, rotary=rotary)
    norm = LayerNorm(sizes.hidden)
    layer = ParallelLayer(
        input_layernorm=norm,
        self_attn=replace(attention, o=replace(attention.o, name="dense"), dropout=config.float("attention_dropout", default=0.0)),
        mlp=MLP(
            up=Linear("fc1", sizes.hidden, sizes.intermediate, bias=True, split="column"),
            down=Linear("fc2", sizes.intermediate, sizes.hidden, bias=True, split="row"),
            activation=config.str("hidden_act", default="gelu_new"),
        ),
        dropout=config.float("resid_pdrop", default=0.0),
    )
    tied = config.bool("tie_word_embeddings", default=False)
    return text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied, dropout=config.float("embd_pdrop", default=0.0)),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, bias=True, split="column"), tied=tied),
        names=("embed_tokens", "final_layernorm", "lm_head"),
    )
