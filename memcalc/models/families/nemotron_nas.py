"""Nemotron Super and Ultra (DeciLM): Llama's layers, each cut to a shape of its own by a search over architectures.

Source: modeling_decilm.py, configuration_decilm.py and block_config.py, the code that comes with nvidia/Llama-3_3-Nemotron-Super-49B-v1
(`trust_remote_code`).
"""

from __future__ import annotations

from typing import Any

from memcalc.components import DecoderLayer, Linear, RMSNorm
from memcalc.components.nas import SearchedLayer
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _remote as remote
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, Component, ModelSpec

MODEL_TYPES = ("nemotron-nas",)
ARCHITECTURES = {"DeciLMForCausalLM": "nemotron-nas"}
MULTIPLE = 256
"""Networks are as wide as a multiple of this."""


def spec(config: Config) -> ModelSpec:
    """``block_configs`` says of each layer how its attention and its network are.

    Raises:
        ModelError: it says so of another number of layers, or what memcalc does not know.
    """
    hidden, heads, count, listed = config.int("hidden_size"), config.int("num_attention_heads"), config.int("num_hidden_layers"), config.get("block_configs")
    if listed is None:
        raise config.missing("block_configs", "each layer has its own")
    if not isinstance(listed, list) or len(listed) != count or not all(isinstance(item, dict) for item in listed):
        raise config.error(f"block_configs must hold an object for each of the {count} layers")
    head_dim = config.int("head_dim", default=text.whole_heads(config, hidden, heads))
    shapes = [(part(config, item, i, "attention"), part(config, item, i, "ffn")) for i, item in enumerate(listed)]
    kinds = [(kv_heads(config, attention, heads, i), intermediate(config, ffn, hidden, i)) for i, (attention, ffn) in enumerate(shapes)]
    norm, activation, bias = RMSNorm(Axis("hidden_size", hidden)), config.str("hidden_act"), config.bool("attention_bias")

    def layer(kind: tuple[int | None, int | None]) -> Component:
        kv, inner = kind
        sizes = text.axes(hidden=hidden, intermediate=inner or 1, vocab=1, layers=count, heads=heads, kv_heads=kv or None, head_dim=head_dim)
        whole = Linear("linear_attn", sizes.hidden, sizes.hidden)
        attention = None if kv is None else whole if kv == 0 else decoder.attention(sizes, qkv_bias=bias, o_bias=bias)
        network = Linear("linear_mlp", sizes.hidden, sizes.hidden) if inner == 0 else decoder.gated_mlp(sizes, activation, bias=config.bool("mlp_bias"))
        mlp = None if inner is None else network
        if attention is None:
            return SearchedLayer(None if mlp is None else norm, mlp)
        return DecoderLayer(norm, attention, None if mlp is None else norm, mlp)

    most = max((kv for kv, _ in kinds if kv), default=heads)
    sizes = text.axes(hidden=hidden, intermediate=1, vocab=config.int("vocab_size"), layers=count, heads=heads, kv_heads=most, head_dim=head_dim)
    blocks: tuple[Block, ...] = decoder.layer_blocks(kinds, layer)
    whole = decoder.causal_lm(config, sizes, blocks, norm=norm)
    return remote.presumed(whole, "transformers' Llama code")


def part(config: Config, item: dict[str, Any], i: int, name: str) -> dict[str, Any]:
    """What a layer's entry says of its attention or network."""
    found = item.get(name)
    if not isinstance(found, dict):
        raise config.error(f"block_configs[{i}].{name} is missing")
    return found


def kv_heads(config: Config, attention: dict[str, Any], heads: int, i: int) -> int | None:
    """KV heads of a layer; 0 where a linear layer stands for its attention, None where there is nothing."""
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return None if attention.get("no_op") else 0
    group = attention.get("n_heads_in_group")
    if isinstance(group, bool) or not isinstance(group, int) or group < 1 or heads % group:
        raise config.error(f"block_configs[{i}].attention.n_heads_in_group is {group!r}; a divisor of the {heads} heads was expected")
    if attention.get("window_length") or attention.get("num_sink_tokens") or attention.get("sparsify"):
        raise config.error(f"block_configs[{i}].attention has a window, sinks or sparsity, which memcalc does not know in nemotron-nas")
    return heads // group


def intermediate(config: Config, ffn: dict[str, Any], hidden: int, i: int) -> int | None:
    """The width of a layer's network: two thirds of ``ffn_mult`` times the hidden size, rounded up to a multiple of 256."""
    if ffn.get("no_op") or ffn.get("replace_with_linear"):
        return None if ffn.get("no_op") else 0
    factor = ffn.get("ffn_mult")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor < 100:
        raise config.error(f"block_configs[{i}].ffn.ffn_mult is {factor!r}; a number was expected")
    return -(-int(2 * factor * hidden / 3) // MULTIPLE) * MULTIPLE
