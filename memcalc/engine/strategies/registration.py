"""In which order a model's modules register their parameters, which flat partitions follow; blocks stand in the order in which they run.

Source: transformers, the ``__init__`` of each model and layer.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.engine.plan import Part, Shard

EARLY_NORMS = ("opt",)
"""Models that register their final norm, and the projection after it, before the layers."""
RUNNING = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
LAYERS = {
    **dict.fromkeys(("bloom", "codegen", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "mpt"), RUNNING),
    "gpt_neox": ("input_layernorm", "mlp_layernorm", "post_attention_layernorm", "self_attn", "mlp"),
    "opt": ("self_attn", "input_layernorm", "attention_norm", "mlp"),
}
"""The parts of a layer in order; elsewhere a layer's own norms come after the mixer and the network, as in Llama."""


def parts_of(parts: Sequence[Part], model_type: str) -> list[Part]:
    """The blocks in order."""
    if model_type not in EARLY_NORMS:
        return list(parts)
    return sorted(parts, key=lambda part: ("embedding", "norm", "layer", "head").index(part.block.role))


def registered(part: Part, shards: Sequence[Shard] | None = None, *, model_type: str = "") -> list[Shard]:
    """Parameters of a block, or these, in order."""
    found = part.shards if shards is None else shards
    names = LAYERS.get(model_type)
    if names is None or part.block.role != "layer":
        return sorted(found, key=lambda s: s.path.count("/") < 3)
    return sorted(found, key=lambda s: names.index(name) if (name := s.path.split("/")[1]) in names else len(names))
