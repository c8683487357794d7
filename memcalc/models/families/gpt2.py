"""GPT-2: learned positions, LayerNorm, one fused projection, layers that hold their weights transposed.

Source: transformers, models/gpt2/modeling_gpt2.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, Conv1D, DecoderLayer, Embedding, LayerNorm
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families._decoder import Sizes
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("gpt2",)
ARCHITECTURES = {"GPT2LMHeadModel": "gpt2"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of multi-head attention and a network of two linear layers.

    Raises:
        ModelError: it has what no file of GPT-2's has: cross-attention, or scores computed in another order.
    """
    for key in ("add_cross_attention", "reorder_and_upcast_attn"):
        if config.bool(key, default=False):
            raise config.error(f"{key} true is not known to memcalc")
    sizes, norm = gpt_sizes(config), LayerNorm(gpt_sizes(config).hidden)
    attention = text.fused_attention(sizes, "c_attn", "c_proj", bias=True, o_bias=True, softmax="model", dropout=config.float("attn_pdrop", default=0.1))
    together = Axis("3 * hidden_size", 3 * sizes.hidden.size)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=replace(
            attention,
            q=Conv1D("c_attn", sizes.hidden, together, bias=True, split="column"),
            o=Conv1D("c_proj", sizes.hidden, sizes.hidden, bias=True, split="row"),
        ),
        post_attention_layernorm=norm,
        mlp=MLP(
            up=Conv1D("c_fc", sizes.hidden, sizes.intermediate, bias=True, split="column"),
            down=Conv1D("c_proj", sizes.intermediate, sizes.hidden, bias=True, split="row"),
            activation=config.str("activation_function", default="gelu_new"),
        ),
        dropout=config.float("resid_pdrop", default=0.1),
        holds="mixed",
    )
    return gpt_model(config, sizes, (Block("h", layer, sizes.num_layers),))


def gpt_sizes(config: Config) -> Sizes:
    """The sizes of GPT-2, under its own names."""
    hidden, heads = config.int("n_embd", "hidden_size"), config.int("n_head", "num_attention_heads")
    return text.axes(
        hidden=hidden,
        intermediate=config.optional_int("n_inner", default=None) or 4 * hidden,
        vocab=config.int("vocab_size"),
        layers=config.int("n_layer", "num_hidden_layers"),
        heads=heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )


def gpt_model(config: Config, sizes: Sizes, layers: tuple[Block, ...], *, extra_bytes: int = 0) -> ModelSpec:
    """The ends of GPT-2 around its layers."""
    return text.language_model(
        config,
        sizes,
        layers,
        embedding=Embedding(
            sizes.vocab,
            sizes.hidden,
            positions=config.int("n_positions", "max_position_embeddings"),
            tied=config.bool("tie_word_embeddings", default=True),
            dropout=config.float("embd_pdrop", default=0.1),
            style="gpt2",
        ),
        norm=LayerNorm(sizes.hidden),
        names=("wte", "ln_f", "lm_head"),
        buffer_bytes=extra_bytes,
        max_positions=("n_positions", "max_position_embeddings"),
    )
