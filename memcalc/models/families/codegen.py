"""CodeGen: GPT-J with one projection for queries, values and keys, in four blocks.

Source: transformers, models/codegen/modeling_codegen.py.
"""

from __future__ import annotations

from memcalc.components import Rotary
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families.gpt2 import gpt_sizes
from memcalc.models.families.gptj import table_model
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("codegen",)
ARCHITECTURES = {"CodeGenForCausalLM": "codegen"}

BLOCKS = 4
"""Blocks of the projection, each with queries, values and keys of a part of the heads (CodeGenAttention, mp_num)."""


def spec(config: Config) -> ModelSpec:
    """Multi-head attention that turns in fp32.

    Raises:
        ModelError: the blocks do not divide the heads.
    """
    sizes = gpt_sizes(config)
    if sizes.num_heads % BLOCKS:
        raise config.error(f"n_head {sizes.num_heads} is not a multiple of {BLOCKS}")
    rotary = Rotary(config.optional_int("rotary_dim", default=64) or sizes.head_dim, style="tabled", precision="angles", sliced=True, inlined=True)
    dropout = config.float("attn_pdrop", default=0.0)
    attention = text.fused_attention(sizes, "qkv_proj", "out_proj", layout="blocks", rotary=rotary, softmax="scores", dropout=dropout)
    return table_model(config, sizes, attention, rotary)
