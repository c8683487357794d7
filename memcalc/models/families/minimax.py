"""MiniMax-Text-01: lightning attention, in some layers softmax attention instead, and experts in all of them.

Source: transformers, models/minimax/modeling_minimax.py. Jitter on the router's input (``router_jitter_noise``, off by default) is left out.
"""

from __future__ import annotations

from memcalc.components import Linear, RMSNorm
from memcalc.components.minimax import LightningAttention, MiniMaxLayer
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.specs.model import Axis, ModelSpec
from memcalc.units import DTYPE_BYTES

MODEL_TYPES = ("minimax",)
ARCHITECTURES = {"MiniMaxForCausalLM": "minimax"}


def spec(config: Config) -> ModelSpec:
    """Layers differ in their attention alone."""
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_local_experts", "num_experts")
    norm, block = RMSNorm(sizes.hidden), config.int("block_size", default=256)
    sparse = MoE(
        gate=SoftmaxRouter("gate", sizes.hidden, count, moe.choose(config, count, "num_experts_per_tok"), normalise=True),
        experts=moe.experts(config, sizes.hidden, sizes.intermediate, count),
    )
    softmax = decoder.attention(sizes, window=config.optional_int("sliding_window", default=None))
    linear = LightningAttention(
        sizes.num_heads,
        sizes.head_dim,
        block,
        qkv_proj=Linear("qkv_proj", sizes.hidden, Axis("3 * num_attention_heads * head_dim", 3 * sizes.queries.size), split="column"),
        norm=RMSNorm(sizes.queries),
        output_gate=Linear("output_gate", sizes.hidden, sizes.queries, split="column"),
        out_proj=Linear("out_proj", sizes.queries, sizes.hidden, split="row"),
        activation=config.str("hidden_act"),
    )
    kinds = layer_kinds(config, sizes.num_layers)
    layers = decoder.layer_blocks(kinds, lambda is_linear: MiniMaxLayer(norm, linear if is_linear else softmax, norm, sparse))
    whole = decoder.causal_lm(config, sizes, layers, norm=norm)
    return moe.with_active(moe.with_buffers(whole, decay_bytes(sizes.num_heads, block) * sum(kinds)))


def layer_kinds(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers have lightning attention.

    Raises:
        ModelError: ``layer_types`` is not one known kind for each layer.
    """
    kinds = config.kinds("layer_types", known=("full_attention", "linear_attention"), count=num_layers)
    return tuple(kind == "linear_attention" for kind in kinds)


def decay_bytes(num_heads: int, block_size: int) -> int:
    """The buffers of one layer: slopes, decays of queries and keys, and within a block; in the model's dtype, taken as bfloat16.

    >>> decay_bytes(4, 256)
    528392
    """
    return DTYPE_BYTES["bfloat16"] * num_heads * (1 + 2 * block_size + block_size**2)
