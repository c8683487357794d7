"""Mamba-2 (Dao & Gu 2024), in transformers' own code (also Codestral Mamba).

Source: transformers, models/mamba2/modeling_mamba2.py.
"""

from __future__ import annotations

from memcalc.components.norm import RMSNorm
from memcalc.components.recurrent import RecurrentLayer
from memcalc.models.config import Config
from memcalc.models.families import _recurrent as recurrent
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("mamba2",)
ARCHITECTURES = {"Mamba2ForCausalLM": "mamba2"}


def spec(config: Config) -> ModelSpec:
    """One branch for each layer; the residual stream is in fp32 where the file says so."""
    hidden = Axis("hidden_size", config.int("hidden_size"))
    heads, head_dim = config.int("num_heads"), config.int("head_dim")
    if config.int("expand") * hidden.size != heads * head_dim:
        raise config.error(f"num_heads {heads} * head_dim {head_dim} is not expand {config.int('expand')} * hidden_size {hidden.size}")
    mixer = recurrent.mixer(config, hidden, prefix="", state="state_size", activation="hidden_act")
    layer = RecurrentLayer(RMSNorm(hidden), mixer, residual_in_fp32=config.bool("residual_in_fp32"))
    layers = Block("layers", layer, config.int("num_hidden_layers"))
    return recurrent.attention_free(config, (layers,), hidden=hidden, vocab=Axis("vocab_size", config.int("vocab_size")))
