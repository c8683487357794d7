"""Nemotron-H and Nemotron 3: Mamba-2, attention without positions, networks and experts, each a layer of one branch by itself.

Source: transformers, models/nemotron_h/modeling_nemotron_h.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, Embedding, Head, Linear, RMSNorm
from memcalc.components.moe import Experts, Groups, MoE, SigmoidRouter
from memcalc.components.recurrent import RecurrentLayer, WideLinear
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _recurrent as recurrent
from memcalc.models.families import _text as text
from memcalc.models.families.deepseek_v3 import correction_bytes
from memcalc.specs.model import Axis, Component, ModelSpec

MODEL_TYPES = ("nemotron_h",)
ARCHITECTURES = {"NemotronHForCausalLM": "nemotron_h"}

LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
"""Kinds of layers, as ``hybrid_override_pattern`` spells them."""


def spec(config: Config) -> ModelSpec:
    """A layer for each letter of the pattern. The final norm and the head are as any decoder's, with an fp32 copy of the logits.

    The head has its own weights even where the file says that it uses the table: transformers' class names no weights to tie.
    """
    kinds = layer_kinds(config)
    hidden, vocab = Axis("hidden_size", config.int("hidden_size")), Axis("vocab_size", config.int("vocab_size"))
    heads, kv_heads = config.int("num_attention_heads"), config.int("num_key_value_heads")
    if heads % kv_heads:
        raise config.error(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    intermediate, norm = Axis("intermediate_size", config.int("intermediate_size") if "mlp" in kinds else 1), RMSNorm(hidden, "fp32_scale")
    sizes = decoder.Sizes(hidden, intermediate, vocab, len(kinds), heads, kv_heads, config.int("head_dim"))
    made = {kind: RecurrentLayer(norm, branch(config, sizes, kind)) for kind in dict.fromkeys(kinds)}
    whole = text.language_model(
        config,
        sizes,
        decoder.layer_blocks(kinds, made.__getitem__),
        embedding=Embedding(vocab, hidden),
        norm=norm,
        head=Head(WideLinear("lm_head", hidden, vocab)),
        names=("embeddings", "norm_f", "lm_head"),
    )
    sparse = made["moe"].mixer if "moe" in made else None
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * kinds.count("moe") if isinstance(sparse, MoE) else 0))


def layer_kinds(config: Config) -> tuple[str, ...]:
    """The kind of each layer: ``layers_block_type``, or the letters of ``hybrid_override_pattern``.

    Raises:
        ModelError: the file has neither, or names a kind that there is not.
    """
    if config.has("layers_block_type", "layer_types"):
        old = {"mamba": "linear_attention", "attention": "full_attention"}
        kinds = tuple(old.get(kind, kind) for kind in config.strs("layers_block_type", "layer_types"))
    elif config.has("hybrid_override_pattern"):
        kinds = tuple(LETTERS.get(letter, letter) for letter in config.str("hybrid_override_pattern"))
    else:
        raise config.missing("layers_block_type", "nothing else says what the layers are")
    unknown = sorted(set(kinds) - set(LETTERS.values()))
    if unknown:
        raise config.error(f"{unknown[0]!r} is no kind of layer; known are {', '.join(f'{word} ({letter})' for letter, word in LETTERS.items())}")
    return kinds


def branch(config: Config, sizes: decoder.Sizes, kind: str) -> Component:
    """What a layer of a kind is made of; attention has grouped queries without positions and biases."""
    if kind == "full_attention":
        return replace(decoder.attention(sizes), rotary=None)
    if kind == "mlp":
        return network(config, sizes.hidden, sizes.intermediate)
    if kind == "moe":
        return experts(config, sizes.hidden)
    return recurrent.mixer(config, sizes.hidden, prefix="mamba_", state="ssm_state_size", activation="mamba_hidden_act")


def network(config: Config, hidden: Axis, intermediate: Axis) -> MLP:
    """Two projections with a squared ReLU between them, of any width."""
    bias = config.bool("mlp_bias")
    up, down = Linear("up_proj", hidden, intermediate, bias, "column"), Linear("down_proj", intermediate, hidden, bias, "row")
    return MLP(up, down, config.str("mlp_hidden_act"))


def experts(config: Config, hidden: Axis) -> MoE:
    """DeepSeek-V3's router in fp32, experts of two projections, perhaps on a latent, and one that all tokens share."""
    count, latent, bias = moe.axis(config, "n_routed_experts"), config.optional_int("moe_latent_size", default=None), config.bool("mlp_bias")
    inputs, top_k = hidden if latent is None else Axis("moe_latent_size", latent), moe.choose(config, count, "num_experts_per_tok")
    groups = Groups(config.int("n_group"), config.int("topk_group"))
    return MoE(
        gate=SigmoidRouter("gate", hidden, count, top_k, dtype="float32", groups=groups, normalise=config.bool("norm_topk_prob")),
        experts=Experts(count, inputs, moe.axis(config, "moe_intermediate_size"), activation=config.str("mlp_hidden_act"), gated=False),
        shared=network(config, hidden, moe.axis(config, "moe_shared_expert_intermediate_size")),
        into_latent=None if latent is None else Linear("fc1_latent_proj", hidden, inputs, bias),
        from_latent=None if latent is None else Linear("fc2_latent_proj", inputs, hidden, bias),
    )
