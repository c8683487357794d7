"""Mistral Small 4: latent attention whose queries are scaled by their position, experts behind a softmax, chosen within groups, and a shared network.

Source: transformers, models/mistral4/modeling_mistral4.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import RMSNorm, Rotary
from memcalc.components.moe import GroupedSoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.models.families import deepseek_v3
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("mistral4",)
ARCHITECTURES = {"Mistral4ForCausalLM": "mistral4"}


def spec(config: Config) -> ModelSpec:
    """The shape of DeepSeek V3, with another router."""
    sizes = latent.read_sizes(config)
    common, norm = sizes.common, RMSNorm(sizes.common.hidden)
    rotary = Rotary(sizes.rope, "pairs" if config.bool("rope_interleave", default=True) else "half")
    sparse = deepseek_v3.experts(config, common.hidden)
    count, choice = sparse.experts.count, sparse.gate
    router = GroupedSoftmaxRouter("gate", common.hidden, count, choice.top_k, groups=latent.groups(config, count), normalise=config.bool("norm_topk_prob"))
    layers = moe.layers(
        moe.after_dense(config, common.num_layers),
        norm=norm,
        self_attn=replace(latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False)), tempered=True),
        sparse=replace(sparse, gate=router),
        dense=decoder.gated_mlp(common, config.str("hidden_act")),
    )
    return moe.with_active(decoder.causal_lm(config, common, layers, norm=norm, rotary=rotary))
