"""Mamba (Gu & Dao 2023), in transformers' own code.

Source: transformers, models/mamba/modeling_mamba.py.
"""

from __future__ import annotations

from memcalc.components.mamba import mamba
from memcalc.components.norm import RMSNorm
from memcalc.components.recurrent import RecurrentLayer
from memcalc.models.config import Config
from memcalc.models.families import _recurrent as recurrent
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("mamba",)
ARCHITECTURES = {"MambaForCausalLM": "mamba"}


def spec(config: Config) -> ModelSpec:
    """One branch for each layer; the residual stream is in fp32 where the file says so."""
    hidden = Axis("hidden_size", config.int("hidden_size", "d_model"))
    mixer = mamba(
        hidden,
        recurrent.channels(config, hidden.size),
        Axis("state_size", config.int("state_size")),
        recurrent.time_step_rank(config, "time_step_rank", hidden.size),
        kernel=config.int("conv_kernel"),
        bias=config.bool("use_bias"),
        conv_bias=config.bool("use_conv_bias"),
        activation=config.str("hidden_act"),
    )
    layer = RecurrentLayer(RMSNorm(hidden), mixer, residual_in_fp32=config.bool("residual_in_fp32"))
    layers = Block("layers", layer, config.int("num_hidden_layers"))
    return recurrent.attention_free(config, (layers,), hidden=hidden, vocab=Axis("vocab_size", config.int("vocab_size")))
