"""Jamba: Mamba layers with an attention layer in each period, and experts in the place of every second network.

Source: transformers, models/jamba/modeling_jamba.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, RMSNorm
from memcalc.components.mamba import mamba
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _recurrent as recurrent
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("jamba",)
ARCHITECTURES = {"JambaForCausalLM": "jamba"}


def spec(config: Config) -> ModelSpec:
    """Attention has no positions; the chosen experts' scores are not normalised; Mamba has norms on time steps, B and C."""
    sizes, activation = decoder.read_sizes(config), config.str("hidden_act")
    hidden, norm = sizes.hidden, RMSNorm(sizes.hidden)
    state, rank = Axis("mamba_d_state", config.int("mamba_d_state")), recurrent.time_step_rank(config, "mamba_dt_rank", hidden.size)
    mixer = mamba(
        hidden,
        Axis("mamba_expand * hidden_size", config.int("mamba_expand") * hidden.size),
        state,
        rank,
        kernel=config.int("mamba_d_conv"),
        bias=config.bool("mamba_proj_bias"),
        conv_bias=config.bool("mamba_conv_bias"),
        activation=activation,
        norms=(RMSNorm(rank), RMSNorm(state), RMSNorm(state)),
        name="mamba",
    )
    attention = replace(decoder.attention(sizes), rotary=None)
    count = moe.axis(config, "num_experts")
    router = SoftmaxRouter("router", hidden, count, moe.choose(config, count, "num_experts_per_tok"), cast_back=True)
    sparse = MoE(router, moe.experts(config, hidden, sizes.intermediate, count))
    dense = decoder.gated_mlp(sizes, activation)

    def layer(kind: tuple[bool, bool]) -> DecoderLayer:
        attends, is_sparse = kind
        return DecoderLayer(norm, attention if attends else mixer, norm, sparse if is_sparse and count.size > 1 else dense)

    attends, is_sparse = (periodic(config, what, sizes.num_layers) for what in ("attn", "expert"))
    layers = decoder.layer_blocks(zip(attends, is_sparse, strict=True), layer)
    embedding = Embedding(sizes.vocab, hidden, tied=config.bool("tie_word_embeddings"))
    names = ("embed_tokens", "final_layernorm", "lm_head")
    return moe.with_active(text.language_model(config, sizes, layers, embedding=embedding, norm=norm, names=names))


def periodic(config: Config, what: str, num_layers: int) -> list[bool]:
    """Which layers are of a kind: one in each period, so many after its first."""
    period, offset = config.int(f"{what}_layer_period"), config.int(f"{what}_layer_offset", minimum=0)
    if offset >= period:
        raise config.error(f"{what}_layer_offset {offset} must be smaller than {what}_layer_period {period}")
    return [i % period == offset for i in range(num_layers)]
