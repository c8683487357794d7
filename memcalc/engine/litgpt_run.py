"""What LitGPT decides about a run: how its models are cut up, in what dtype all is held, and its buffers."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, Attention, DecoderLayer, GatedMLP, LayerNorm, ParallelLayer, RMSNorm
from memcalc.components.lora import LoraLinear
from memcalc.engine.parts import apart
from memcalc.errors import InputError
from memcalc.specs.job import Mesh
from memcalc.specs.model import Component, ModelSpec
from memcalc.specs.run import Run

ENGINES = ("ddp", "fsdp1", "fsdp2")
QKV = 3


def as_litgpt(run: Run, model: ModelSpec) -> tuple[Run, ModelSpec]:
    """The run with adapters in the dtype of the model, its loss and its logits; the model with fused projections in parts, so that each can be adapted.

    Raises:
        InputError: a layer that LitGPT builds in another way, or that is not transcribed.
    """
    changes: dict[str, object] = {"loss": "chunked_output", "upcast_logits": False}
    if "loss" in run.model_fields_set and run.loss not in ("cross_entropy", "chunked_output"):
        raise InputError(f"LitGPT has no {run.loss} loss; its own is on logits in pieces, chunked_output", where="loss")
    if run.quantization is not None:
        changes["kbit_upcast"] = False
    if run.lora is not None:
        if "dtype" in run.lora.model_fields_set and run.lora.dtype not in (run.dtype, run.bnb_4bit_compute_dtype):
            raise InputError(f"LitGPT holds adapters in the dtype of the model, {run.dtype}; leave it out", where="lora.dtype")
        changes["lora"] = run.lora.model_copy(update={"dtype": run.bnb_4bit_compute_dtype or run.dtype})
    for block in model.blocks:
        if block.role == "layer" and not is_known(block.module):
            raise InputError(f"layers of {model.model_type} are not transcribed of LitGPT's; use code: transformers", where="code")
    blocks = tuple(replace(block, module=_cut_up(block.module)) for block in model.blocks)
    return run.model_copy(update=changes), replace(model, blocks=blocks)


def refuse_litgpt(run: Run, mesh: Mesh, *, engine: str) -> None:
    """Say no to what LitGPT does not run, or memcalc does not transcribe.

    Raises:
        InputError: another engine, or way to train.
    """
    if run.task != "train":
        raise InputError("LitGPT's modules are known for task train; use code: transformers", where="code")
    if engine not in ENGINES or mesh.world > mesh.dp:
        raise InputError("LitGPT runs on one card, under DDP or FSDP; use engine ddp, fsdp1 or fsdp2 without tp, pp and cp", where="sharding.engine")
    if run.attention != "sdpa":
        raise InputError("LitGPT's attention is one fused kernel; use sdpa", where="attention")
    if run.recompute not in ("none", "full"):
        raise InputError("LitGPT's checkpoints are around every block; use none or full", where="recompute")
    for key in ("autocast", "trainable_layers", "recompute_method", "prompt", "fp8", "contrastive", "evaluation"):
        if getattr(run, key) is not None:
            raise InputError("not known of LitGPT's modules; leave it out, or use code: transformers", where=key)


def is_known(layer: Component) -> bool:
    """Whether a layer is one of those that LitGPT's Block stands for."""
    if not isinstance(layer, (DecoderLayer, ParallelLayer)) or not isinstance(layer.self_attn, Attention):
        return False
    mixer = layer.self_attn
    norms = [layer.input_layernorm, *([layer.post_attention_layernorm, layer.post_mixer_norm] if isinstance(layer, DecoderLayer) else [])]
    plain = all(n is None or isinstance(n, (RMSNorm, LayerNorm)) for n in norms) and not (isinstance(layer, DecoderLayer) and layer.post_mixer_norm)
    return plain and isinstance(layer.mlp, (GatedMLP, MLP)) and mixer.rotary is not None and mixer.softcap is None and not mixer.sinks


def with_buffers(model: ModelSpec, *, seq_len: int) -> ModelSpec:
    """Cosines and sines of as many positions as the longest sequence has, in fp32, once (GPT.max_seq_length).

    And of each layer whose queries, keys and values do not all have an adapter, the numbers of the columns that have one, in 64 bits (LoRAQKVLinear.lora_ind).
    """
    angles = columns = 0
    for block in model.blocks:
        if isinstance(block.module, (DecoderLayer, ParallelLayer)) and isinstance(block.module.self_attn, Attention):
            mixer = block.module.self_attn
            angles = 2 * 4 * seq_len * (0 if mixer.rotary is None else mixer.rotary.dim)
            parts: tuple[Component | None, ...] = (mixer.q, mixer.k, mixer.v)
            adapted = [m.outputs.size for m in parts if isinstance(m, LoraLinear)]
            columns += block.repeat * 8 * sum(adapted) * (len(adapted) < QKV)
    return replace(model, buffer_bytes=angles + columns)


def _cut_up(module: Component) -> Component:
    """A layer with its fused projections in parts; of the families that are known, none has a window there."""
    if not isinstance(module, (DecoderLayer, ParallelLayer)) or not isinstance(module.self_attn, Attention):
        return module
    return apart(replace(module, dropout=0.0, self_attn=replace(module.self_attn, window=None)))
