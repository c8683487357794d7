"""JetMoE: experts in the attention as well as in the networks; counted, not run.

Source: transformers, models/jetmoe/modeling_jetmoe.py.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec, Weight

MODEL_TYPES = ("jetmoe",)
ARCHITECTURES = {"JetMoeForCausalLM": "jetmoe"}


def spec(config: Config) -> ModelSpec:
    """Each expert of the attention has queries and an output projection of its own; keys and values are all heads'."""
    hidden, inner = Axis("hidden_size", config.int("hidden_size")), Axis("intermediate_size", config.int("intermediate_size"))
    count, kv_heads, channels = moe.axis(config, "num_local_experts"), config.int("num_key_value_heads"), config.int("kv_channels")
    top_k, norm = moe.choose(config, count, "num_experts_per_tok"), RMSNorm(hidden)
    keys, both = Axis("num_key_value_heads * kv_channels", kv_heads * channels), Axis("2 * num_key_value_heads * kv_channels", 2 * kv_heads * channels)
    attention = Parts((("experts", experts(count, hidden, keys, keys)), *counted.linears(hidden, both, "kv_proj")))
    network = experts(count, hidden, Axis("2 * intermediate_size", 2 * inner.size), inner)
    layer = Parts((("input_layernorm", norm), ("self_attention", attention), ("post_attention_layernorm", norm), ("mlp", network)))
    num_layers = config.int("num_hidden_layers")
    sizes = text.axes(
        hidden=hidden.size,
        intermediate=inner.size,
        vocab=config.int("vocab_size"),
        layers=num_layers,
        heads=kv_heads * top_k,
        kv_heads=kv_heads,
        head_dim=channels,
    )
    return counted.model(config, sizes, (Block("layers", layer, num_layers),), what="experts of attention", norm=norm)


def experts(count: Axis, hidden: Axis, up: Axis, down: Axis) -> Parts:
    """Two stacks of matrices, a router, and a bias of the result."""
    cut = (("expert", 0),)
    into = Parts((), (Weight("weight", (count, up, hidden), cut),))  # type: ignore[arg-type]
    out = Parts((), (Weight("weight", (count, hidden, down), cut),))  # type: ignore[arg-type]
    return Parts((("input_linear", into), ("output_linear", out), *counted.linears(hidden, count, "router/layer")), counted.vectors(hidden, "bias"))
