"""What torchtune decides about a run: which models it has and how their layers are cut up, in what dtype all is held, and who shards them."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Attention, DecoderLayer, RMSNorm
from memcalc.engine.parts import apart
from memcalc.errors import InputError
from memcalc.specs.job import Mesh
from memcalc.specs.model import Block, Component, ModelSpec
from memcalc.specs.run import Run
from memcalc.units import gib

MODELS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3")
"""Families whose modules are transcribed."""
CAPPED = "gemma2"
"""The one whose scores are made in full, and whose windows are kept."""
LOSSES = ("cross_entropy", "chunked_output", "linear_cross_entropy")
LONG_LLAMA = 131072
"""Positions of Llama 3.1 and later, whose builders give all layers one table, with adapters, too."""
ENGINES = ("ddp", "fsdp2")
"""``ddp`` stands for one card: several are ``fully_shard``'s."""


def as_torchtune(run: Run, model: ModelSpec) -> tuple[Run, ModelSpec]:
    """The run with everything in one dtype, adapters and what a quantised base leaves among it, and the model with torchtune's layers and buffers.

    Raises:
        InputError: a model that torchtune does not have, or that is not transcribed.
    """
    if model.model_type not in MODELS:
        raise InputError(f"of torchtune's models {', '.join(MODELS)} are known, not {model.model_type}; use code: transformers", where="code")
    changes: dict[str, object] = {"kbit_upcast": False} if run.quantization is not None else {}
    if run.lora is not None:
        if "dtype" in run.lora.model_fields_set and run.lora.dtype != run.dtype:
            raise InputError(f"torchtune holds adapters in the dtype of the model, {run.dtype}; leave it out", where="lora.dtype")
        changes["lora"] = run.lora.model_copy(update={"dtype": run.dtype})
    blocks = tuple(replace(block, module=_cut_up(block.module, model.model_type)) for block in model.blocks)
    positions = model.max_position_embeddings or 0
    shares = model.model_type == "llama" and positions >= LONG_LLAMA
    buffers = buffer_bytes(blocks, positions=positions, each=run.lora is not None and not shares)
    return run.model_copy(update=changes), replace(model, blocks=blocks, buffer_bytes=buffers, attentions=("sdpa",))


def refuse_torchtune(run: Run, model: ModelSpec, mesh: Mesh, *, engine: str) -> None:
    """Say no to what torchtune does not run, or memcalc does not transcribe.

    Raises:
        InputError: another engine, attention, loss, or way to train; parallelism beside data.
    """
    if run.task != "train":
        raise InputError("torchtune's modules are known for task train; use code: transformers", where="code")
    if engine not in ENGINES or (engine == "ddp" and mesh.world > 1):
        raise InputError("torchtune runs on one card, or shards with fully_shard; use engine fsdp2", where="sharding.engine")
    if mesh.world > mesh.dp:
        raise InputError("torchtune's modules are known with data parallelism alone; leave tp, pp, cp and ep out", where="sharding")
    if run.loss not in LOSSES:
        raise InputError(f"torchtune has no {run.loss} loss; use {', '.join(LOSSES)}", where="loss")
    if run.attention != "sdpa":
        raise InputError("torchtune's attention is one fused kernel (Gemma 2's its own code); use sdpa", where="attention")
    _refuse_knobs(run, model)


def _refuse_knobs(run: Run, model: ModelSpec) -> None:
    if run.recompute not in ("none", "full"):
        raise InputError("torchtune's checkpoints are known around every layer; use none or full", where="recompute")
    for key in ("autocast", "trainable_layers", "recompute_method", "prompt", "fp8", "contrastive"):
        if getattr(run, key) is not None:
            raise InputError("torchtune has no such thing; leave it out, or use code: transformers", where=key)
    if run.quantization not in (None, "nf4-dq", "nf4"):
        raise InputError("torchtune packs frozen weights as NF4 with packed scales: nf4-dq", where="quantization")
    if model.model_type == CAPPED and run.packing:
        raise InputError("torchtune's Gemma 2 takes no masks of packed samples (Gemma2Attention.forward); leave it out", where="packing")
    if model.model_type == CAPPED and run.torch_compile:
        raise InputError("what compiled layers of torchtune's Gemma 2 keep is not known; leave it out", where="torch_compile")
    seq_len = run.seq_len
    if seq_len is not None and model.max_position_embeddings and seq_len > model.max_position_embeddings:
        raise InputError(f"torchtune's table has {model.max_position_embeddings} positions, not {seq_len}", where="seq_len")


def notes_of(run: Run, model: ModelSpec, *, seq_len: int) -> list[str]:
    """What its releases 0.5 and 0.6 keep beside: ``F.rms_norm`` in fp32 holds what it normalised in fp32, for the gradient of its weight."""
    is_kept = run.lora is None and run.recompute == "none" and not run.torch_compile and run.offload.activations is None
    if run.loss == "linear_cross_entropy" or model.model_type.startswith("gemma") or not is_kept:
        return []
    widths = sum(block.repeat * _normalised(block.module) for block in model.blocks)
    more = gib(2 * run.micro_batch * seq_len * widths)
    return [f"counted is torchtune's last commit; in its releases 0.5 and 0.6 norms keep their result in fp32, {more} more"]


def _normalised(module: Component) -> int:
    """Numbers of a token that norms in fp32 give; queries laid out by their norm have attention's output copied, as many again."""
    if isinstance(module, RMSNorm):
        return int(module.width.size)
    if not isinstance(module, DecoderLayer) or not isinstance(module.self_attn, Attention):
        return 0
    mixer, around = module.self_attn, (module.input_layernorm, module.post_attention_layernorm)
    heads = (2 * mixer.num_heads + mixer.num_kv_heads) * mixer.head_dim if mixer.q_norm is not None else 0
    return heads + sum(int(norm.width.size) for norm in around if norm is not None)


def buffer_bytes(blocks: tuple[Block, ...], *, positions: int, each: bool) -> int:
    """Tables of angles in fp32, of all positions that the model may have, with their frequencies: one, or with adapters one of each layer.

    Source: torchtune/modules/position_embeddings.py; models/*/_component_builders.py, where ``lora_*_self_attention`` makes its own but of Llama 3.1 and 3.2.
    """
    total = 0
    for block in blocks:
        mixer = block.module.self_attn if isinstance(block.module, DecoderLayer) else None
        if isinstance(mixer, Attention) and mixer.rotary is not None:
            whole = 4 * mixer.head_dim * (1 if mixer.rotary.style == "interleaved" else 2)
            table = positions * whole + 4 * (mixer.head_dim // 2)
            total = total + block.repeat * table if each else table
    return total


def _cut_up(module: Component, model_type: str) -> Component:
    """A layer with its fused projections in parts, and its positions as torchtune has them."""
    if not isinstance(module, DecoderLayer) or not isinstance(module.self_attn, Attention):
        return module
    module = apart(module)
    mixer = module.self_attn
    assert isinstance(mixer, Attention)
    assert mixer.rotary is not None
    rotary = replace(mixer.rotary, style="half", precision="angles" if model_type == "phi3" else "model")
    if not model_type.startswith(("qwen", "phi")):
        rotary = replace(rotary, style="interleaved", precision="all")
    return replace(module, self_attn=replace(mixer, rotary=rotary, window=mixer.window if model_type == CAPPED else None), dropout=0.0)
