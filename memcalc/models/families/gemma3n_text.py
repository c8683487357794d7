"""Gemma 3n's text model: several streams side by side (AltUp), low-rank branches (LAuReL), a table for each layer; counted, not run.

Source: transformers, models/gemma3n/modeling_gemma3n.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Axis, Block, Component, ModelSpec, Weight

MODEL_TYPES = ("gemma3n_text",)
ARCHITECTURES = {"Gemma3nForCausalLM": "gemma3n_text"}

ENDS = ("embed_tokens", "norm", "lm_head")


def spec(config: Config) -> ModelSpec:
    """The last layers use keys and values of earlier ones."""
    widths = config.get("intermediate_size")
    listed = config.ints("intermediate_size", minimum=1) if isinstance(widths, list) else None
    sizes = decoder.read_sizes(config, head_dim_follows=False, intermediate=listed[0] if listed else None)
    hidden, norm, count = sizes.hidden, RMSNorm(sizes.hidden), sizes.num_layers
    if listed and len(listed) != count:
        raise config.error(f"intermediate_size has {len(listed)} numbers for {count} layers")
    own, streams = Axis("hidden_size_per_layer_input", config.int("hidden_size_per_layer_input")), config.int("altup_num_inputs")
    first_shared = count - config.int("num_kv_shared_layers", minimum=0)
    rank = Axis("laurel_rank", config.int("laurel_rank"))
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    laurel = Parts((*counted.linears(hidden, rank, "linear_left"), *counted.linears(rank, hidden, "linear_right"), ("post_laurel_norm", norm)))
    beside = (*counted.linears(hidden, own, "per_layer_input_gate"), *counted.linears(own, hidden, "per_layer_projection"))

    def layer(kind: tuple[bool, int]) -> Component:
        shares, width = kind
        inner = Axis("intermediate_size", width)
        network = Parts((*counted.linears(hidden, inner, "gate_proj", "up_proj"), *counted.linears(inner, hidden, "down_proj")))
        parts = (("self_attn", attention(config, sizes, shares=shares)), ("mlp", network), *((name, norm) for name in names))
        return Parts((*parts, ("altup", altup(hidden, streams)), ("laurel", laurel), *beside, ("post_per_layer_input_norm", norm)))

    kinds = ((i >= first_shared, listed[i] if listed else int(sizes.intermediate.size)) for i in range(count))
    return counted.model(
        config,
        sizes,
        (Block("tables", tables(config, hidden, own, count, streams)), *decoder.layer_blocks(kinds, layer)),
        what="streams side by side",
        norm=norm,
        names=ENDS,
    )


def attention(config: Config, sizes: decoder.Sizes, *, shares: bool) -> Parts:
    """Grouped-query attention with norms of each head; layers that share keys and values have queries alone."""
    bias, head = config.bool("attention_bias", default=False), RMSNorm(Axis("head_dim", sizes.head_dim))
    queries = (*counted.linears(sizes.hidden, sizes.queries, "q_proj", bias=bias), ("q_norm", head))
    keys = () if shares else (*counted.linears(sizes.hidden, sizes.keys, "k_proj", "v_proj", bias=bias), ("k_norm", head))
    return Parts((*queries, *keys, *counted.linears(sizes.queries, sizes.hidden, "o_proj", bias=bias)))


def altup(hidden: Axis, streams: int) -> Parts:
    """How the streams of a layer are predicted from each other and corrected."""
    count, square = Axis("altup_num_inputs", streams), Axis("altup_num_inputs²", streams**2)
    coefficients = (*counted.linears(count, count, "correction_coefs"), *counted.linears(count, square, "prediction_coefs"))
    router = (*counted.linears(hidden, count, "modality_router"), ("router_norm", RMSNorm(hidden)))
    return Parts((*coefficients, *router), counted.vectors(hidden, "correct_output_scale"))


def tables(config: Config, hidden: Axis, own: Axis, num_layers: int, streams: int) -> Parts:
    """The second table, which has a row for each layer, and projections between the streams."""
    every = Axis("num_hidden_layers * hidden_size_per_layer_input", num_layers * own.size)
    table = Weight("embed_tokens_per_layer/weight", (Axis("vocab_size_per_layer_input", config.int("vocab_size_per_layer_input")), every))
    between = counted.linears(hidden, hidden, *(f"{name}/{i}" for name in ("altup_projections", "altup_unembed_projections") for i in range(streams - 1)))
    return Parts((*counted.linears(hidden, every, "per_layer_model_projection"), ("per_layer_projection_norm", RMSNorm(own)), *between), (table,))
