"""MiniCPM and MiniCPM-MoE: Llama's layer with constants on table, branches and the head's input; experts as modules where there are any.

Source: modeling_minicpm.py and configuration_minicpm.py, the code that comes with openbmb/MiniCPM-MoE-8x2B (`trust_remote_code`). Its
attention, and its buffers of rotary positions, are counted as those of transformers' Llama, turned in fp32.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm, Rotary
from memcalc.components.looped import ModuleMoE
from memcalc.components.moe import SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _remote as remote
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("minicpm",)
ARCHITECTURES = {"MiniCPMForCausalLM": "minicpm"}


def spec(config: Config) -> ModelSpec:
    """Every layer has ``num_experts`` experts of the dense network's width, or that network where the file names none."""
    sizes, activation = decoder.read_sizes(config), config.str("hidden_act", default="silu")
    norm, rotary = RMSNorm(sizes.hidden), Rotary(sizes.head_dim, precision="all")
    dense, sparse = decoder.gated_mlp(sizes, activation), None
    if config.int("num_experts", default=0, minimum=0):
        count = moe.axis(config, "num_experts")
        choice = moe.choose(config, count, "num_experts_per_tok")
        router = SoftmaxRouter("gate", sizes.hidden, count, choice, normalise=True, cast_back=True, in_place=False)
        sparse = ModuleMoE(router, moe.expert_modules(count, sizes.hidden, sizes.intermediate, activation))
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=config.bool("attention_bias", default=False), rotary=rotary),
        post_attention_layernorm=norm,
        mlp=sparse or dense,
        scaled=True,
    )
    layers = (Block("layers", layer, sizes.num_layers),)
    whole = moe.remote(
        config, sizes, layers, norm=norm, rotary=rotary, tied=config.bool("tie_word_embeddings", default=True), sparse=sparse is not None, scaled=True
    )
    return remote.presumed(whole, "transformers' Llama code with rotary positions in fp32")
