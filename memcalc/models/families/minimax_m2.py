"""MiniMax M2: grouped-query attention with norms over all queries and all keys, sigmoid scores with a correction.

Source: transformers, models/minimax_m2/modeling_minimax_m2.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import RMSNorm, Rotary
from memcalc.components.moe import MoE, SigmoidRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import ModelSpec
from memcalc.units import DTYPE_BYTES

MODEL_TYPES = ("minimax_m2",)
ARCHITECTURES = {"MiniMaxM2ForCausalLM": "minimax_m2"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts; part of a head is turned. The correction is a buffer in the model's dtype, taken as bfloat16."""
    sizes, count = decoder.read_sizes(config, head_dim_follows=False), moe.axis(config, "num_local_experts", "num_experts")
    norm, rotary = RMSNorm(sizes.hidden), Rotary(rotary_dim(config, sizes.head_dim), sliced=True)
    layers = moe.layers(
        [True] * sizes.num_layers,
        norm=norm,
        self_attn=decoder.attention(sizes, q_norm=RMSNorm(sizes.queries), k_norm=RMSNorm(sizes.keys), rotary=rotary),
        sparse=MoE(
            gate=SigmoidRouter("gate", sizes.hidden, count, moe.choose(config, count, "num_experts_per_tok"), eps=False, scaled=False),
            experts=moe.experts(config, sizes.hidden, sizes.intermediate, count),
        ),
        dense=None,
    )
    whole = decoder.causal_lm(config, sizes, layers, norm=norm, rotary=rotary)
    return moe.with_active(moe.with_buffers(whole, DTYPE_BYTES["bfloat16"] * count.size * sizes.num_layers))


def rotary_dim(config: Config, head_dim: int) -> int:
    """How much of a head is turned: an older key gives the number itself, newer ones the share."""
    if config.has("rotary_dim"):
        return config.int("rotary_dim")
    return text.partial_rotary(config, head_dim, default=1.0)
