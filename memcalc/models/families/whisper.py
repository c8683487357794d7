"""Whisper: an encoder of sounds and a decoder of text; counted, not run.

Source: transformers, models/whisper/modeling_whisper.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, Component, ModelSpec, Weight

MODEL_TYPES = ("whisper",)
ARCHITECTURES = {"WhisperForConditionalGeneration": "whisper"}

KERNEL = Axis("kernel", 3)


def spec(config: Config) -> ModelSpec:
    """Two convolutions before the encoder, whose positions are given; the head uses the decoder's table."""
    hidden, norm = Axis("d_model", config.int("d_model")), LayerNorm(Axis("d_model", config.int("d_model")))
    heads, vocab = config.int("decoder_attention_heads"), Axis("vocab_size", config.int("vocab_size"))
    ears = Weight("embed_positions/weight", (Axis("max_source_positions", config.int("max_source_positions")), hidden), frozen=True)
    front = Parts((conv("conv1", Axis("num_mel_bins", config.int("num_mel_bins")), hidden), conv("conv2", hidden, hidden)), (ears,))
    num_layers = {stack: config.int(f"{stack}_layers") for stack in ("encoder", "decoder")}
    positions = Weight("embed_positions/weight", (Axis("max_target_positions", config.int("max_target_positions")), hidden))
    blocks = (
        Block("encoder", front, role="tower_end"),
        Block("encoder/layers", layer(config, "encoder", hidden), num_layers["encoder"], role="tower"),
        Block("encoder/layer_norm", norm, role="tower_end"),
        Block("decoder", Parts((), (positions,))),
        Block("decoder/layers", layer(config, "decoder", hidden), num_layers["decoder"]),
    )
    sizes = text.axes(hidden=hidden.size, intermediate=config.int("decoder_ffn_dim"), vocab=vocab.size, layers=sum(num_layers.values()), heads=heads)
    whole = counted.model(
        config,
        sizes,
        blocks,
        what="the encoder of sounds, and attention to it",
        norm=norm,
        names=("decoder/embed_tokens", "decoder/layer_norm", "proj_out"),
        max_positions=("max_target_positions",),
    )
    return replace(whole, tied=config.bool("tie_word_embeddings"))


def conv(name: str, inputs: Axis, outputs: Axis) -> tuple[str, Component]:
    """A convolution along time."""
    return name, Parts((), (Weight("weight", (outputs, inputs, KERNEL)), Weight("bias", (outputs,))))


def layer(config: Config, stack: str, hidden: Axis) -> Parts:
    """Pre-norm layers of BART's parts, whose keys have no bias."""
    inner, norm = Axis(f"{stack}_ffn_dim", config.int(f"{stack}_ffn_dim")), LayerNorm(hidden)
    attention = Parts((*counted.linears(hidden, hidden, "k_proj"), *counted.linears(hidden, hidden, "v_proj", "q_proj", "out_proj", bias=True)))
    names = ("self_attn", "encoder_attn") if stack == "decoder" else ("self_attn",)
    branches = [part for name in names for part in ((name, attention), (f"{name}_layer_norm", norm))]
    network = (*counted.linears(hidden, inner, "fc1", bias=True), *counted.linears(inner, hidden, "fc2", bias=True))
    return Parts((*branches, *network, ("final_layer_norm", norm)))
