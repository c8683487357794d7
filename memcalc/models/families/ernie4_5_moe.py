"""ERNIE 4.5 with experts: a softmax router in float32 with a correction that takes no gradient, and shared experts.

Source: transformers, models/ernie4_5_moe/modeling_ernie4_5_moe.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.components.moe import CorrectedSoftmaxRouter, MoE
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("ernie4_5_moe",)
ARCHITECTURES = {"Ernie4_5_MoeForCausalLM": "ernie4_5_moe"}


def spec(config: Config) -> ModelSpec:
    """Every n-th layer between a first and a last one has experts; biases are everywhere or nowhere."""
    sizes, count, width = decoder.read_sizes(config), moe.axis(config, "moe_num_experts", "num_experts"), moe.axis(config, "moe_intermediate_size")
    norm, bias, activation = RMSNorm(sizes.hidden), config.bool("use_bias", default=False), config.str("hidden_act")
    rotary = Rotary(sizes.head_dim, style="repeated", precision="products")
    num_shared = config.int("moe_num_shared_experts", minimum=0)
    shared = Axis("moe_num_shared_experts * moe_intermediate_size", num_shared * width.size)
    layers = moe.layers(
        sparse_layers(config, sizes.num_layers),
        norm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary),
        sparse=MoE(
            gate=CorrectedSoftmaxRouter("gate", sizes.hidden, count, moe.choose(config, count, "moe_k", "num_experts_per_tok"), dtype="float32"),
            experts=moe.experts(config, sizes.hidden, width, count),
            shared=moe.swiglu(sizes.hidden, shared, activation, bias=bias) if num_shared else None,
            order="shared first",
        ),
        dense=decoder.gated_mlp(sizes, activation, bias=bias),
    )
    tied = config.bool("tie_word_embeddings", default=True)
    whole = text.language_model(
        config,
        sizes,
        layers,
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, bias, "column"), tied=tied),
    )
    return moe.with_active(whole)


def sparse_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers have experts."""
    first, last = config.int("moe_layer_start_index", minimum=0), config.int("moe_layer_end_index", minimum=-1)
    step = config.int("moe_layer_interval")
    last = num_layers - 1 if last == -1 else last
    return tuple((i + 1) % step == 0 and first <= i <= last for i in range(num_layers))
