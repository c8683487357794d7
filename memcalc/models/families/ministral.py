"""Ministral, Code World Model: Mistral's layer, of which some see all and some a window.

Source: transformers, models/ministral/modeling_ministral.py, models/cwm/modeling_cwm.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("ministral", "cwm")
ARCHITECTURES = {"MinistralForCausalLM": "ministral", "CwmForCausalLM": "cwm"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU without biases."""
    sizes = decoder.read_sizes(config, head_dim_follows=config.model_type != "cwm")
    norm, mlp = RMSNorm(sizes.hidden), decoder.gated_mlp(sizes, config.str("hidden_act"))
    kinds = text.layer_windows(config, sizes.num_layers, pattern=None, window=config.optional_int("sliding_window"))
    layers = decoder.layer_blocks(kinds, lambda window: DecoderLayer(norm, decoder.attention(sizes, window=window), norm, mlp))
    return decoder.causal_lm(config, sizes, layers, norm=norm)
