"""StarCoder 1, SantaCoder: GPT-2 with one KV head for all, and linear layers that hold their weights as usual.

Source: transformers, models/gpt_bigcode/modeling_gpt_bigcode.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, DecoderLayer, LayerNorm, Linear
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families.gpt2 import gpt_model, gpt_sizes
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("gpt_bigcode",)
ARCHITECTURES = {"GPTBigCodeForCausalLM": "gpt_bigcode"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of multi-query (or multi-head) attention and a network of two linear layers; a mask of all positions is a buffer."""
    sizes, multi_query = gpt_sizes(config), config.bool("multi_query", default=True)
    if multi_query:
        sizes = replace(sizes, num_kv_heads=1)
    norm = LayerNorm(sizes.hidden)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=text.fused_attention(
            sizes,
            "c_attn",
            "c_proj",
            bias=True,
            o_bias=True,
            layout="shared" if multi_query else "per_head",
            dropout=config.float("attn_pdrop", default=0.1),
        ),
        post_attention_layernorm=norm,
        mlp=MLP(
            up=Linear("c_fc", sizes.hidden, sizes.intermediate, bias=True, split="column"),
            down=Linear("c_proj", sizes.intermediate, sizes.hidden, bias=True, split="row"),
            activation=config.str("activation_function", default="gelu_pytorch_tanh"),
        ),
        dropout=config.float("resid_pdrop", default=0.1),
        holds="mixed",
    )
    return gpt_model(config, sizes, (Block("h", layer, sizes.num_layers),), extra_bytes=config.int("n_positions", "max_position_embeddings") ** 2)
