"""Mixtral: Mistral's layer with a softmax router and SwiGLU experts in the place of its network.

Source: transformers, models/mixtral/modeling_mixtral.py. Jitter on the router's input (``router_jitter_noise``, off by default) is left out.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("mixtral",)
ARCHITECTURES = {"MixtralForCausalLM": "mixtral"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts; the chosen scores are divided by their sum and stay in float32."""
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_local_experts", "num_experts")
    norm = RMSNorm(sizes.hidden)
    sparse = MoE(
        gate=SoftmaxRouter("gate", sizes.hidden, count, moe.choose(config, count, "num_experts_per_tok"), normalise=True),
        experts=moe.experts(config, sizes.hidden, sizes.intermediate, count),
    )
    attention = decoder.attention(sizes, window=config.optional_int("sliding_window", default=None))
    layers = moe.layers([True] * sizes.num_layers, norm=norm, self_attn=attention, sparse=sparse, dense=None)
    return moe.with_active(decoder.causal_lm(config, sizes, layers, norm=norm))
