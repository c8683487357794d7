"""The model as Megatron-core builds it, where that is not as its own code does."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, Head, Linear
from memcalc.components.moe import MoE
from memcalc.components.mtp import MultiTokenHead, PredictionModule
from memcalc.errors import InputError
from memcalc.formulas.megatron import padded_vocab_size
from memcalc.specs.job import Job
from memcalc.specs.model import Axis, Block, Component


def build(job: Job) -> tuple[Block, ...]:
    """The model's blocks.

    Megatron pads the vocabulary, so that every rank's part of it is as large as any other's; holds routers in the dtype of all weights;
    and puts prediction modules before the head where the launch asks for them.

    Raises:
        InputError: prediction modules after a layer that has no norm for them.
    """
    blocks = tuple(replace(block, module=_built(block.module, job)) for block in job.model.blocks)
    return with_predictions(blocks, job.run.mtp_num_layers) if job.run.mtp_num_layers else blocks


def _built(module: Component, job: Job) -> Component:
    def pad(axis: Axis) -> Axis:
        rows = padded_vocab_size(axis.size, tp=job.mesh.tp, divisible_by=job.run.sharding.make_vocab_size_divisible_by)
        return Axis(f"{axis.name}, padded", rows)

    if isinstance(module, Embedding):
        return replace(module, vocab=pad(module.vocab))
    if isinstance(module, Head):
        return replace(module, proj=replace(module.proj, outputs=pad(module.proj.outputs)))
    if isinstance(module, DecoderLayer) and isinstance(module.mlp, MoE):
        return replace(module, mlp=replace(module.mlp, gate=replace(module.mlp.gate, dtype=None)))
    return module


def with_predictions(blocks: tuple[Block, ...], count: int) -> tuple[Block, ...]:
    """Prediction modules in the place of the head, each with a layer like the model's last.

    Raises:
        InputError: see `build`.
    """
    layer = next(b.module for b in reversed(blocks) if b.role == "layer")
    table = next((b.module for b in blocks if isinstance(b.module, Embedding)), None)
    if not isinstance(layer, DecoderLayer) or layer.input_layernorm is None or table is None:
        raise InputError("there are no prediction modules for a model of this kind", where="mtp_num_layers")
    norm, hidden = layer.input_layernorm, table.width
    projection = Linear("eh_proj", Axis(f"2 * {hidden.name}", 2 * hidden.size), hidden, split="column")
    modules = (PredictionModule(norm, norm, projection, layer, norm),) * count
    return tuple(replace(b, module=MultiTokenHead(modules, table, b.module)) if isinstance(b.module, Head) else b for b in blocks)
