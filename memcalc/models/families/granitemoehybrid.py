"""Granite 4: Mamba-2 or attention, then experts beside a network that all tokens share, or that network alone.

Source: transformers, models/granitemoehybrid/modeling_granitemoehybrid.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.components.moe import MoE, TopKRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _recurrent as recurrent
from memcalc.models.families import _text as text
from memcalc.models.families.granitemoe import shared
from memcalc.specs.model import Component, ModelSpec

MODEL_TYPES = ("granitemoehybrid",)
ARCHITECTURES = {"GraniteMoeHybridForCausalLM": "granitemoehybrid"}

KINDS = {"mamba": "linear_attention", "attention": "full_attention"}
"""Kinds of layers as files say, and as transformers 5 does."""


def spec(config: Config) -> ModelSpec:
    """Constants on table, branches and logits as in Granite 3; heads are turned only where the file says ``rope``."""
    sizes, bias = decoder.read_sizes(config), config.bool("attention_bias")
    norm, rotary = RMSNorm(sizes.hidden), Rotary(sizes.head_dim) if config.get("position_embedding_type") == "rope" else None
    attention = replace(decoder.attention(sizes, qkv_bias=bias, o_bias=bias), rotary=rotary)
    mixers: dict[str, Component] = {"full_attention": attention}
    kinds = layer_kinds(config, sizes.num_layers)
    if "linear_attention" in kinds:
        mixers["linear_attention"] = recurrent.mamba_mixer(config, sizes.hidden)
    mlp = network(config, sizes)
    tied = config.bool("tie_word_embeddings")
    whole = text.language_model(
        config,
        sizes,
        decoder.layer_blocks(kinds, lambda kind: DecoderLayer(norm, mixers[kind], norm, mlp, scaled=True)),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, scaled=True, tied=tied),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, scaled=True),
    )
    return moe.with_active(whole)


def layer_kinds(config: Config, num_layers: int) -> tuple[str, ...]:
    """The kind of each layer.

    Raises:
        ModelError: ``layer_types`` does not name one for each layer.
    """
    return config.kinds("layer_types", "layers_block_type", known=tuple(KINDS.values()), count=num_layers, spelt=KINDS)


def network(config: Config, sizes: decoder.Sizes) -> Component:
    """The shared network; with experts before it where the file has any."""
    beside = shared(config, sizes)
    if not config.int("num_local_experts", minimum=0):
        return beside
    count = moe.axis(config, "num_local_experts")
    router = TopKRouter("router", sizes.hidden, count, moe.choose(config, count, "num_experts_per_tok"), wide=True)
    return MoE(router, moe.experts(config, sizes.hidden, sizes.intermediate, count), shared=beside, shared_name="shared_mlp")
