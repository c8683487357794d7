"""Zamba 2: Mamba-2 layers, before some of which one of a few transformer layers runs that they share; counted, not run.

Source: transformers, models/zamba2/modeling_zamba2.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.mamba2 import mamba2
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _recurrent as recurrent
from memcalc.models.families import _text as text
from memcalc.models.families._decoder import layer_blocks
from memcalc.specs.model import Axis, Block, Component, ModelSpec

MODEL_TYPES = ("zamba2",)
ARCHITECTURES = {"Zamba2ForCausalLM": "zamba2"}


def spec(config: Config) -> ModelSpec:
    """Shared layers read the hidden states beside the embeddings, and have adapters for each place where they run."""
    hidden, heads = Axis("hidden_size", config.int("hidden_size")), config.int("num_attention_heads")
    inner, num_layers = Axis("intermediate_size", config.optional_int("intermediate_size") or 4 * hidden.size), config.int("num_hidden_layers")
    kinds = config.kinds("layers_block_type", known=("mamba", "hybrid"), count=num_layers)
    single = Parts((("mamba", mixer(config, hidden)), ("input_layernorm", RMSNorm(hidden))))

    def layer(kind: str) -> Component:
        return single if kind == "mamba" else Parts((*counted.linears(hidden, hidden, "linear"), ("mamba_decoder", single)))

    num_places, num_shared = kinds.count("hybrid"), min(config.int("num_mem_blocks"), kinds.count("hybrid"))
    shared = tuple(Block(f"shared_transformer/{i}", transformer(config, hidden, inner, len(range(i, num_places, num_shared)))) for i in range(num_shared))
    sizes = text.axes(
        hidden=hidden.size, intermediate=inner.size, vocab=config.int("vocab_size"), layers=num_layers, heads=heads, head_dim=2 * hidden.size // heads
    )
    return counted.model(
        config,
        sizes,
        (*layer_blocks(kinds, layer), *shared),
        what="transformer layers that others share",
        norm=RMSNorm(hidden),
        names=("embed_tokens", "final_layernorm", "lm_head"),
    )


def mixer(config: Config, hidden: Axis) -> Component:
    """Mamba-2's mixer under this file's names."""
    heads = config.int("n_mamba_heads")
    return mamba2(
        hidden,
        num_heads=heads,
        head_dim=config.int("mamba_expand") * hidden.size // heads,
        num_groups=recurrent.groups(config, "mamba_ngroups", heads),
        state=config.int("mamba_d_state"),
        chunk=config.int("chunk_size"),
        kernel=config.int("mamba_d_conv"),
        bias=config.bool("add_bias_linear"),
        conv_bias=config.bool("use_conv_bias"),
        activation="silu",
    )


def transformer(config: Config, hidden: Axis, inner: Axis, num_places: int) -> Parts:
    """One of the shared layers, with adapters for each of its places."""
    both, rank, twice = (
        Axis("2 * hidden_size", 2 * hidden.size),
        Axis("adapter_rank", config.int("adapter_rank")),
        Axis("2 * intermediate_size", 2 * inner.size),
    )
    attention = [*counted.linears(both, both, "q_proj", "k_proj", "v_proj"), *counted.linears(both, hidden, "o_proj")]
    if config.bool("use_shared_attention_adapter"):
        attention += adapters(both, rank, both, num_places, *(f"linear_{name}_adapter_list" for name in "qkv"))
    bias = config.bool("add_bias_linear")
    network = [*counted.linears(hidden, twice, "gate_up_proj", bias=bias), *counted.linears(inner, hidden, "down_proj", bias=bias)]
    network += adapters(hidden, rank, twice, num_places, "gate_up_proj_adapter_list")
    norms = (("input_layernorm", RMSNorm(both)), ("pre_ff_layernorm", RMSNorm(hidden)))
    return Parts((("self_attn", Parts(tuple(attention))), ("feed_forward", Parts(tuple(network))), *norms))


def adapters(inputs: Axis, rank: Axis, outputs: Axis, num_places: int, *names: str) -> list[tuple[str, Component]]:
    """Low-rank pairs, one for each place."""
    pairs = [(*counted.linears(inputs, rank, f"{name}/{i}/0"), *counted.linears(rank, outputs, f"{name}/{i}/1")) for name in names for i in range(num_places)]
    return [part for pair in pairs for part in pair]
