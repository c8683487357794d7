"""Falcon-H1: attention and Mamba-2 side by side in every layer, and constants on every branch.

Source: transformers, models/falcon_h1/modeling_falcon_h1.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.components.falcon_h1 import ScaledMLP, TwoMixerLayer
from memcalc.components.gated_norm import GatedRMSNorm, Order
from memcalc.components.mamba2 import Mamba2
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _recurrent as recurrent
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("falcon_h1",)
ARCHITECTURES = {"FalconH1ForCausalLM": "falcon_h1"}

BF16 = 2
"""Width of buffers: the dtype that models are loaded in."""


def spec(config: Config) -> ModelSpec:
    """Each layer sums both mixers, then has a gated network."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias")
    norm, mamba = RMSNorm(sizes.hidden), mixer(config, sizes.hidden)
    plain = decoder.gated_mlp(sizes, config.str("hidden_act"), bias=config.bool("mlp_bias"))
    attention = replace(decoder.attention(sizes, qkv_bias=bias, o_bias=bias), scaled_key=True)
    layer = TwoMixerLayer(norm, mamba, attention, norm, ScaledMLP(plain.gate, plain.up, plain.down, plain.activation))
    tied = config.bool("tie_word_embeddings")
    whole = text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=Rotary(sizes.head_dim), scaled=True, tied=tied),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, scaled=True),
        names=("embed_tokens", "final_layernorm", "lm_head"),
    )
    return moe.with_buffers(whole, sizes.num_layers * int(mamba.in_proj.outputs.size) * BF16)


def mixer(config: Config, hidden: Axis) -> Mamba2:
    """Mamba-2's mixer, whose norm is there only where the file says so."""
    made = recurrent.mamba_mixer(config, hidden, inner=config.optional_int("mamba_d_ssm"))
    norm = None
    if config.bool("mamba_rms_norm"):
        inner = made.out_proj.inputs
        order: Order = "norm first" if config.bool("mamba_norm_before_gate") else "gate first"
        norm = GatedRMSNorm(inner, order, group=inner.size // made.num_groups, wide=True)
    return replace(made, norm=norm, out_proj=replace(made.out_proj, bias=config.bool("projectors_bias")), scaled=True)
