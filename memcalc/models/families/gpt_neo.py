"""GPT-Neo: GPT-2 with separate projections, scores in fp32 without scale, and windows in every other layer.

Source: transformers, models/gpt_neo/modeling_gpt_neo.py.
"""

from __future__ import annotations

from memcalc.components import MLP, DecoderLayer, Embedding, GPTNeoAttention, LayerNorm, Linear
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("gpt_neo",)
ARCHITECTURES = {"GPTNeoForCausalLM": "gpt_neo"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of multi-head attention and a network of two linear layers; each layer has a mask of all positions as a buffer."""
    hidden, heads, layers = config.int("hidden_size"), config.int("num_heads", "num_attention_heads"), config.int("num_layers", "num_hidden_layers")
    sizes = text.axes(
        hidden=hidden,
        intermediate=config.optional_int("intermediate_size", default=None) or 4 * hidden,
        vocab=config.int("vocab_size"),
        layers=layers,
        heads=heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )
    norm, width, dropout = LayerNorm(sizes.hidden), sizes.hidden, config.float("resid_dropout", default=0.0)
    q, k, v = (Linear(name, width, width, split="column") for name in ("q_proj", "k_proj", "v_proj"))
    attention = GPTNeoAttention(
        heads,
        heads,
        sizes.head_dim,
        q,
        k,
        v,
        Linear("out_proj", width, width, bias=True, split="row"),
        softmax="scores",
        dropout=config.float("attention_dropout", default=0.0),
    )
    mlp = MLP(
        up=Linear("c_fc", width, sizes.intermediate, bias=True, split="column"),
        down=Linear("c_proj", sizes.intermediate, width, bias=True, split="row"),
        activation=config.str("activation_function", default="gelu_new"),
    )
    layer = DecoderLayer(norm, attention, norm, mlp, dropout=dropout, holds="mixed", returns_probabilities=True)
    positions = config.int("max_position_embeddings")
    return text.language_model(
        config,
        sizes,
        (Block("h", layer, layers),),
        embedding=Embedding(
            sizes.vocab,
            width,
            positions=positions,
            tied=config.bool("tie_word_embeddings", default=True),
            dropout=config.float("embed_dropout", default=0.0),
            style="gpt2",
        ),
        norm=norm,
        names=("wte", "ln_f", "lm_head"),
        buffer_bytes=layers * positions**2,
        attentions=text.EAGER_ONLY,
    )
