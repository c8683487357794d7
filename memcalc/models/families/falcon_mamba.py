"""Falcon-Mamba: Mamba with norms without weights on time steps, B and C.

Source: transformers, models/falcon_mamba/modeling_falcon_mamba.py.
"""

from __future__ import annotations

from memcalc.components.mamba import mamba
from memcalc.components.norm import RMSNorm
from memcalc.components.recurrent import RecurrentLayer
from memcalc.models.config import Config
from memcalc.models.families import _recurrent as recurrent
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("falcon_mamba",)
ARCHITECTURES = {"FalconMambaForCausalLM": "falcon_mamba"}


def spec(config: Config) -> ModelSpec:
    """One branch for each layer. The norms without weights hold buffers of ones, as wide as the channels and twice as wide as a state."""
    hidden = Axis("hidden_size", config.int("hidden_size"))
    intermediate = recurrent.channels(config, hidden.size)
    state = Axis("state_size", config.int("state_size"))
    rank = recurrent.time_step_rank(config, "time_step_rank", hidden.size)
    mixer = mamba(
        hidden,
        intermediate,
        state,
        rank,
        kernel=config.int("conv_kernel"),
        bias=config.bool("use_bias"),
        conv_bias=config.bool("use_conv_bias"),
        activation=config.str("hidden_act"),
        norms=(RMSNorm(rank, "unscaled"), RMSNorm(state, "unscaled"), RMSNorm(state, "unscaled")),
    )
    layer = RecurrentLayer(RMSNorm(hidden), mixer, residual_in_fp32=config.bool("residual_in_fp32"))
    layers = Block("layers", layer, config.int("num_hidden_layers"))
    vocab = Axis("vocab_size", config.int("vocab_size"))
    return recurrent.attention_free(config, (layers,), hidden=hidden, vocab=vocab, buffer_bytes=layers.repeat * (intermediate.size + 2 * state.size) * BF16)


BF16 = 2
"""Width of those buffers: the dtype that models are loaded in."""
