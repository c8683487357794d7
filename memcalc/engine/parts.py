"""A layer whose fused projections are taken apart, for frameworks that build or adapt their parts one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from memcalc.components import Attention, DecoderLayer, GatedMLP, ParallelLayer
from memcalc.specs.model import Axis

L = TypeVar("L", bound=DecoderLayer | ParallelLayer)


def apart(layer: L) -> L:
    """Queries, keys and values, and gate and up, by projections of their own."""
    mixer, network = layer.self_attn, layer.mlp
    changed: dict[str, Any] = {}
    if isinstance(mixer, Attention) and mixer.k is None:
        changed["self_attn"] = _mixer(mixer)
    if isinstance(network, GatedMLP) and network.up is None:
        wide = Axis("intermediate_size", network.down.inputs.size)
        gate, up = (replace(network.gate, name=name, outputs=wide) for name in ("gate_proj", "up_proj"))
        changed["mlp"] = replace(network, gate=gate, up=up)
    return replace(layer, **changed)


def _mixer(mixer: Attention) -> Attention:
    queries, keys = Axis("heads * head_dim", mixer.num_heads * mixer.head_dim), Axis("kv_heads * head_dim", mixer.num_kv_heads * mixer.head_dim)
    return replace(
        mixer,
        q=replace(mixer.q, name="q_proj", outputs=queries),
        k=replace(mixer.q, name="k_proj", outputs=keys),
        v=replace(mixer.q, name="v_proj", outputs=keys),
    )
