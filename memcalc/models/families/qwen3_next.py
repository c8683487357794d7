"""Qwen3-Next: gated delta networks and gated attention, with many small experts.

Source: transformers, models/qwen3_next/modeling_qwen3_next.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _delta as delta
from memcalc.models.families import _moe as moe
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("qwen3_next",)
ARCHITECTURES = {"Qwen3NextForCausalLM": "qwen3_next"}


def spec(config: Config) -> ModelSpec:
    """Every n-th layer has experts; the delta networks take queries, keys, values and gate from one projection."""
    sizes = delta.sizes(config)
    turned = delta.rotary(config, sizes.head_dim, planes=False)
    mixers = delta.mixers(config, sizes, turned, fused=True)
    kinds = moe.sparse_layers(config, sizes.num_layers)
    sparse = delta.experts(config, sizes.hidden, normalise=config.bool("norm_topk_prob")) if any(kinds) else None
    dense = None if all(kinds) else moe.swiglu(sizes.hidden, moe.axis(config, "intermediate_size"), config.str("hidden_act"))

    def layer(kind: tuple[str, bool]) -> DecoderLayer:
        mixer, is_sparse = kind
        mlp = sparse if is_sparse else dense
        assert mlp is not None
        return delta.layer(sizes, mixers[mixer], mlp)

    each = zip(delta.kinds(config), kinds, strict=True)
    return moe.with_active(delta.model(config, sizes, decoder.layer_blocks(each, layer), turned))
