"""Falcon-H1: attention and Mamba-2 side by side in every layer; counted, not run.

Source: transformers, models/falcon_h1/modeling_falcon_h1.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import RMSNorm
from memcalc.components.mamba2 import mamba2
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _recurrent as recurrent
from memcalc.specs.model import Axis, Block, Component, ModelSpec

MODEL_TYPES = ("falcon_h1",)
ARCHITECTURES = {"FalconH1ForCausalLM": "falcon_h1"}


def spec(config: Config) -> ModelSpec:
    """Each layer sums both mixers, then has a gated network."""
    sizes, norm = decoder.read_sizes(config), RMSNorm(Axis("hidden_size", config.int("hidden_size")))
    bias = config.bool("attention_bias", default=False)
    parts = (
        ("feed_forward", decoder.gated_mlp(sizes, config.str("hidden_act"), bias=config.bool("mlp_bias", default=False))),
        ("mamba", mixer(config, sizes.hidden)),
        ("self_attn", decoder.attention(sizes, qkv_bias=bias, o_bias=bias)),
        ("input_layernorm", norm),
        ("pre_ff_layernorm", norm),
    )
    layers = (Block("layers", Parts(parts), sizes.num_layers),)
    return counted.model(config, sizes, layers, what="two mixers side by side", norm=norm, names=("embed_tokens", "final_layernorm", "lm_head"))


def mixer(config: Config, hidden: Axis) -> Component:
    """Mamba-2's mixer; its norm is there only where the file says so."""
    heads = config.int("mamba_n_heads")
    inner = config.optional_int("mamba_d_ssm") or config.int("mamba_expand") * hidden.size
    made = mamba2(
        hidden,
        num_heads=heads,
        head_dim=inner // heads if config.get("mamba_d_head", "auto") == "auto" else config.int("mamba_d_head"),
        num_groups=recurrent.groups(config, "mamba_n_groups", heads),
        state=config.int("mamba_d_state"),
        chunk=config.int("mamba_chunk_size"),
        kernel=config.int("mamba_d_conv"),
        bias=config.bool("mamba_proj_bias"),
        conv_bias=config.bool("mamba_conv_bias"),
        activation=config.str("hidden_act"),
    )
    norm = (("norm", made.norm),) if config.bool("mamba_rms_norm") else ()
    projections = (("in_proj", made.in_proj), ("conv1d", made.conv1d), ("out_proj", replace(made.out_proj, bias=config.bool("projectors_bias", default=False))))
    return Parts((*projections, *norm), tuple(made.own_weights()))
