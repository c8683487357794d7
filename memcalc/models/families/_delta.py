"""What Qwen3-Next and the text models of Qwen3.5 share: gated delta networks, every fourth layer attention with a gate."""

from __future__ import annotations

from dataclasses import fields

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.components.delta_net import GatedDeltaNet, gated_delta_net
from memcalc.components.gated_attention import GatedAttention
from memcalc.components.linear import Linear
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, Component, ModelSpec


def mixers(config: Config, sizes: decoder.Sizes, turned: Rotary, *, fused: bool) -> dict[str, Component]:
    """The mixer of each kind of layer.

    Args:
        config: the file.
        sizes: of the model.
        turned: how the full mixer's heads are turned.
        fused: the delta network has two projections instead of four.
    """
    return {"linear_attention": delta_net(config, sizes.hidden, fused=fused), "full_attention": attention(config, sizes, turned)}


def delta_net(config: Config, hidden: Axis, *, fused: bool) -> GatedDeltaNet:
    """The linear mixer.

    Raises:
        ModelError: its value heads are not a multiple of its key heads.
    """
    keys, values = config.int("linear_num_key_heads"), config.int("linear_num_value_heads")
    if values % keys:
        raise config.error(f"linear_num_value_heads {values} is not a multiple of linear_num_key_heads {keys}")
    return gated_delta_net(
        hidden,
        num_k_heads=keys,
        num_v_heads=values,
        k_dim=config.int("linear_key_head_dim"),
        v_dim=config.int("linear_value_head_dim"),
        kernel=config.int("linear_conv_kernel_dim"),
        activation=config.str("hidden_act"),
        fused=fused,
    )


def attention(config: Config, sizes: decoder.Sizes, turned: Rotary) -> GatedAttention:
    """The full mixer: part of each head is turned, queries and keys have a norm on each head, and a gate stands beside each query."""
    bias, norm = config.bool("attention_bias"), RMSNorm(Axis("head_dim", sizes.head_dim), "gemma")
    plain = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=norm, k_norm=norm, rotary=turned)
    doubled = Axis("2 * num_attention_heads * head_dim", 2 * sizes.queries.size)
    values = {f.name: getattr(plain, f.name) for f in fields(plain)}
    return GatedAttention(**values | {"q": Linear("q_proj", sizes.hidden, doubled, bias, "column")})


def rotary(config: Config, head_dim: int, *, planes: bool) -> Rotary:
    """A quarter of each head unless the file says otherwise; positions in images have three numbers."""
    return Rotary(text.partial_rotary(config, head_dim, default=0.25), sliced=True, planes="interleaved" if planes else "")


def kinds(config: Config) -> tuple[str, ...]:
    """The kind of each layer: as ``layer_types`` says, or attention in every so-manieth.

    Raises:
        ModelError: ``layer_types`` does not name one for each layer.
    """
    num_layers, interval = config.int("num_hidden_layers"), config.int("full_attention_interval", default=4)
    usual = tuple("linear_attention" if (i + 1) % interval else "full_attention" for i in range(num_layers))
    return config.kinds("layer_types", known=("full_attention", "linear_attention"), count=num_layers, default=usual)


def model(config: Config, sizes: decoder.Sizes, layers: tuple[Block, ...], turned: Rotary) -> ModelSpec:
    """The whole model, with Gemma's norms."""
    embedding = Embedding(sizes.vocab, sizes.hidden, rotary=turned, tied=config.bool("tie_word_embeddings"))
    return text.language_model(config, sizes, layers, embedding=embedding, norm=RMSNorm(sizes.hidden, "gemma"))


def layer(sizes: decoder.Sizes, mixer: Component, mlp: Component) -> DecoderLayer:
    """A pre-norm layer with Gemma's norms."""
    norm = RMSNorm(sizes.hidden, "gemma")
    return DecoderLayer(input_layernorm=norm, self_attn=mixer, post_attention_layernorm=norm, mlp=mlp)


def sizes(config: Config) -> decoder.Sizes:
    """The sizes of a model with experts; its dense networks, which few such models have, get theirs where they are made.

    Raises:
        ModelError: the heads do not go together.
    """
    heads, kv_heads = config.int("num_attention_heads"), config.int("num_key_value_heads")
    if heads % kv_heads:
        raise config.error(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    return text.axes(
        hidden=config.int("hidden_size"),
        intermediate=config.int("moe_intermediate_size"),
        vocab=config.int("vocab_size"),
        layers=config.int("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=config.int("head_dim"),
    )


def experts(config: Config, hidden: Axis, *, normalise: bool = True) -> MoE:
    """A softmax router, routed experts, and a shared one behind a gate."""
    count, activation = moe.axis(config, "num_experts"), config.str("hidden_act")
    return MoE(
        gate=SoftmaxRouter("gate", hidden, count, moe.choose(config, count, "num_experts_per_tok"), normalise=normalise, cast_back=True),
        experts=moe.experts(config, hidden, moe.axis(config, "moe_intermediate_size"), count),
        shared=moe.swiglu(hidden, moe.axis(config, "shared_expert_intermediate_size"), activation),
        shared_gate=Linear("shared_expert_gate", hidden, Axis("1", 1)),
        shared_name="shared_expert",
        order="shared first",
    )
