"""LFM2, dense and with experts: gated short convolutions, and attention in some layers.

Source: transformers, models/lfm2/modeling_lfm2.py and models/lfm2_moe/modeling_lfm2_moe.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, GatedMLP, Linear, RMSNorm, Rotary
from memcalc.components.moe import Experts, MoE, SigmoidRouter
from memcalc.components.short_conv import short_conv
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.models.families.deepseek_v3 import correction_bytes
from memcalc.specs.model import Axis, Component, ModelSpec

MODEL_TYPES = ("lfm2", "lfm2_moe")
ARCHITECTURES = {"Lfm2ForCausalLM": "lfm2", "Lfm2MoeForCausalLM": "lfm2_moe"}


def spec(config: Config) -> ModelSpec:
    """Attention has a norm on each head of queries and keys; with experts the first layers are dense."""
    has_experts = config.model_type == "lfm2_moe"
    sizes = decoder.read_sizes(config, intermediate=None if has_experts else width(config))
    norm, head_norm, rotary = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim)), Rotary(sizes.head_dim)
    mixers: dict[str, Component] = {
        "conv": short_conv(sizes.hidden, kernel=config.int("conv_L_cache"), bias=config.bool("conv_bias")),
        "full_attention": decoder.attention(sizes, q_norm=head_norm, k_norm=head_norm, rotary=rotary),
    }
    first = config.int("num_dense_layers", minimum=0) if has_experts else sizes.num_layers
    dense = network(sizes.hidden, sizes.intermediate)
    sparse = experts(config, sizes.hidden) if has_experts else None

    def layer(kind: tuple[str, bool]) -> DecoderLayer:
        return DecoderLayer(norm, mixers[kind[0]], norm, dense if kind[1] else sparse)

    kinds = layer_kinds(config, sizes.num_layers)
    layers = decoder.layer_blocks(((kind, i < first) for i, kind in enumerate(kinds)), layer)
    embedding = Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_embedding", "tie_word_embeddings"))
    whole = text.language_model(config, sizes, layers, embedding=embedding, norm=norm, names=("embed_tokens", "embedding_norm", "lm_head"))
    if sparse is None:
        return whole
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * (sizes.num_layers - first) if config.bool("use_expert_bias") else 0))


def layer_kinds(config: Config, num_layers: int) -> tuple[str, ...]:
    """The kind of each layer: ``layer_types``, or attention in those of ``full_attn_idxs``.

    Raises:
        ModelError: ``layer_types`` does not name one for each layer.
    """
    if not config.has("layer_types") and config.has("full_attn_idxs"):
        listed = config.ints("full_attn_idxs")
        return tuple("full_attention" if i in listed else "conv" for i in range(num_layers))
    return config.kinds("layer_types", known=("conv", "full_attention"), count=num_layers)


def width(config: Config) -> int:
    """Of the dense model's networks: two thirds of what the file says, times a factor, rounded up, unless the file switches that off (Lfm2MLP)."""
    size = config.int("block_ff_dim", "intermediate_size")
    if not config.bool("block_auto_adjust_ff_dim"):
        return size
    factor, multiple = config.float("block_ffn_dim_multiplier"), config.int("block_multiple_of")
    return -(-int(factor * int(2 * size / 3)) // multiple) * multiple


def network(hidden: Axis, intermediate: Axis) -> GatedMLP:
    """A gated network without biases."""
    return GatedMLP(
        gate=Linear("w1", hidden, intermediate, split="column"),
        up=Linear("w3", hidden, intermediate, split="column"),
        down=Linear("w2", intermediate, hidden, split="row"),
    )


def experts(config: Config, hidden: Axis) -> MoE:
    """Sigmoid scores in the model's dtype, chosen with a correction."""
    count, normalise = moe.axis(config, "num_experts"), config.bool("norm_topk_prob")
    router = SigmoidRouter("gate", hidden, count, moe.choose(config, count, "num_experts_per_tok"), normalise=normalise, wide=False, in_place=False)
    return MoE(router, Experts(count, hidden, moe.axis(config, "moe_intermediate_size")))
