"""Gemma 4, text alone: windows in five of six layers, wider heads in the sixth, experts beside the network or inputs for each layer.

Source: transformers, models/gemma4/modeling_gemma4.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, Head, Linear, Rotary
from memcalc.components.gemma4 import Gemma4Attention, Gemma4Layer, Gemma4Norm, Gemma4Router
from memcalc.components.moe import Experts
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _layer_inputs as layer_inputs
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("gemma4_text",)
ARCHITECTURES = {"Gemma4ForCausalLM": "gemma4_text"}

SCALE_BYTES = 2
"""The scale of each table, and each layer's, is a buffer of one number in the model's dtype."""


def spec(config: Config) -> ModelSpec:
    """The last layers may share keys and values of earlier ones; each may have inputs of its own."""
    sizes, activation = decoder.read_sizes(config, head_dim_follows=False), config.str("hidden_activation", default="gelu_pytorch_tanh")
    norm, tables = Gemma4Norm(sizes.hidden), layer_inputs.tables(config, sizes.hidden, sizes.num_layers, Gemma4Norm)
    own = layer_inputs.share(config, sizes.hidden, norm, activation)
    kinds, reused = text.layer_windows(config, sizes.num_layers, pattern=6, window=config.int("sliding_window")), shared_layers(config, sizes.num_layers)
    gate = experts = None
    if config.bool("enable_moe_block"):
        count, inner = Axis("num_experts", config.int("num_experts")), Axis("moe_intermediate_size", config.int("moe_intermediate_size"))
        router_norm = Gemma4Norm(sizes.hidden, "unscaled")
        gate = Gemma4Router(router_norm, Linear("proj", sizes.hidden, count), moe.choose(config, count, "top_k_experts"))
        experts = Experts(count, sizes.hidden, inner, activation=activation)

    def layer(kind: tuple[int | None, bool, bool, bool]) -> Gemma4Layer:
        window, reuses, stores, first = kind
        inner = Axis("intermediate_size", sizes.intermediate.size * (2 if reuses and config.bool("use_double_wide_mlp") else 1))
        mixer = replace(attention(config, sizes, window=window, reuses=reuses), stores=stores, feeds=stores and any(reused), first=first)
        return Gemma4Layer(mixer, moe.swiglu(sizes.hidden, inner, activation), norm, gate, experts, own)

    tied, rotaries = config.bool("tie_word_embeddings"), (Rotary(config.int("global_head_dim", default=512)), Rotary(sizes.head_dim, name="local"))
    whole = text.language_model(
        config,
        sizes,
        decoder.layer_blocks(zip(kinds, reused, last_of_kind(kinds, reused), first_of(reused), strict=True), layer),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotaries[0], local_rotary=rotaries[1], scaled=True, tied=tied, inputs=tables),
        norm=norm,
        head=Head(
            Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, softcap=config.optional_float("final_logit_softcapping", default=None)
        ),
    )
    whole = moe.with_buffers(whole, SCALE_BYTES * (1 + (tables is not None) + sizes.num_layers))
    if gate is None or experts is None:
        return whole
    unused = experts.num_params // gate.proj.outputs.size * (gate.proj.outputs.size - gate.top_k) * sizes.num_layers
    return replace(whole, active_params=whole.num_params - unused)


def shared_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers take keys and values from an earlier one: the last ``num_kv_shared_layers``."""
    shared = config.int("num_kv_shared_layers", minimum=0)
    return tuple(i >= num_layers - shared for i in range(num_layers))


def last_of_kind(kinds: tuple[int | None, ...], reused: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which layers are the last of their kind with keys and values of their own."""
    own = [i for i, reuses in enumerate(reused) if not reuses]
    last = {kinds[i]: i for i in own}
    return tuple(i in last.values() for i in range(len(kinds)))


def first_of(reused: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which layer is the first that takes keys and values from an earlier one."""
    return tuple(reuses and not reused[i - 1] for i, reuses in enumerate(reused))


def attention(config: Config, sizes: decoder.Sizes, *, window: int | None, reuses: bool) -> Gemma4Attention:
    """Attention of a layer; one that sees the whole sequence may have fewer KV heads, whose keys are its values."""
    whole, bias = window is None, config.bool("attention_bias", default=False)
    same = whole and config.bool("attention_k_eq_v")
    dim, kv_heads = (config.int("global_head_dim", default=512) if whole else sizes.head_dim), sizes.num_kv_heads
    if same:
        kv_heads = config.optional_int("num_global_key_value_heads", default=None) or kv_heads
    keys, queries = Axis("num_key_value_heads * head_dim", kv_heads * dim), Axis("num_attention_heads * head_dim", sizes.num_heads * dim)
    head_norm = Axis("head_dim", dim)
    return Gemma4Attention(
        sizes.num_heads,
        kv_heads,
        dim,
        q=Linear("q_proj", sizes.hidden, queries, bias, "column"),
        k=None if reuses else Linear("k_proj", sizes.hidden, keys, bias, "column"),
        v=None if reuses or same else Linear("v_proj", sizes.hidden, keys, bias, "column"),
        o=Linear("o_proj", queries, sizes.hidden, bias, "row"),
        q_norm=Gemma4Norm(head_norm),
        k_norm=None if reuses else Gemma4Norm(head_norm),
        rotary=Rotary(dim) if whole else Rotary(dim, name="local"),
        window=window,
        v_norm=None if reuses else Gemma4Norm(head_norm, "unscaled"),
    )
