"""Llama 4's text model: chunked attention, every fourth layer without positions, every n-th with experts.

Source: transformers, models/llama4/modeling_llama4.py.
"""

from __future__ import annotations

from dataclasses import fields

from memcalc.components import Embedding, RMSNorm, Rotary
from memcalc.components.llama4 import InputScaledMoE, Llama4Attention, Llama4Layer
from memcalc.components.moe import Experts, TopKRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("llama4_text",)
ARCHITECTURES = {"Llama4ForCausalLM": "llama4_text"}


def spec(config: Config) -> ModelSpec:
    """Layers with experts have a shared one beside them; the others are wider."""
    sizes, count = decoder.read_sizes(config, head_dim_follows=False), moe.axis(config, "num_local_experts", "num_experts")
    norm, activation, rotary = RMSNorm(sizes.hidden), config.str("hidden_act"), Rotary(sizes.head_dim, "complex")
    sparse = InputScaledMoE(
        gate=TopKRouter("router", sizes.hidden, count, moe.choose(config, count, "num_experts_per_tok")),
        experts=Experts(count, sizes.hidden, sizes.intermediate, activation=activation, transposed=True),
        shared=moe.swiglu(sizes.hidden, sizes.intermediate, activation),
        shared_name="shared_expert",
    )
    dense = moe.swiglu(sizes.hidden, moe.axis(config, "intermediate_size_mlp"), activation)
    bias, norms, tempers = (
        config.bool("attention_bias", default=False),
        config.bool("use_qk_norm", default=True),
        config.bool("attn_temperature_tuning", default=True),
    )
    chunk = config.optional_int("attention_chunk_size", default=8192)

    def layer(kind: tuple[bool, bool]) -> Llama4Layer:
        is_sparse, turns = kind
        plain = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary, window=chunk if turns else None)
        shared = {field.name: getattr(plain, field.name) for field in fields(plain)} | {"rotary": rotary if turns else None, "softmax": "model"}
        shared["tempered"] = tempers and not turns
        l2_norm = RMSNorm(sizes.hidden._replace(name="head_dim", size=sizes.head_dim), "unscaled") if norms and turns else None
        attention = Llama4Attention(**shared, l2_norm=l2_norm)
        return Llama4Layer(norm, attention, norm, sparse if is_sparse else dense)

    kinds = zip(sparse_layers(config, sizes.num_layers), turned_layers(config, sizes.num_layers), strict=True)
    whole = text.language_model(
        config,
        sizes,
        decoder.layer_blocks(kinds, layer),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False), mask_each=True),
        norm=norm,
        attentions=("eager", "sdpa"),
    )
    return moe.with_active(whole)


def sparse_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers have experts: those in ``moe_layers``, or every ``interleave_moe_layer_step``-th."""
    if config.has("moe_layers"):
        listed = set(config.ints("moe_layers"))
        return tuple(i in listed for i in range(num_layers))
    step = config.int("interleave_moe_layer_step", default=1)
    return tuple((i + 1) % step == 0 for i in range(num_layers))


def turned_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers turn positions and see their chunk only: as ``no_rope_layers`` says (1: it turns), or all but every fourth.

    Raises:
        ModelError: it says less than one number for each layer.
    """
    listed = config.ints("no_rope_layers", default=())
    if listed and len(listed) < num_layers:
        raise config.error(f"no_rope_layers has {len(listed)} numbers for {num_layers} layers")
    step = config.int("no_rope_layer_interval", default=4)
    return tuple(bool(listed[i]) if listed else (i + 1) % step != 0 for i in range(num_layers))
