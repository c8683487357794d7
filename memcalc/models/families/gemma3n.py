"""Gemma 3n: its text model beside towers for images and sounds, which are counted and not run on either.

Source: transformers, models/gemma3n/modeling_gemma3n.py; of the tower for images, a model of timm 1.0, the number of parameters alone.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, Linear
from memcalc.components.altup import OtherTokens
from memcalc.components.gemma4 import Gemma4Norm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _sound as sound
from memcalc.models.families import _vision as vision
from memcalc.models.families._gemma_sound import conformer, subsample
from memcalc.specs.model import Axis, Block, ModelSpec, Weight
from memcalc.specs.vision import Vision

MODEL_TYPES = ("gemma3n",)
ARCHITECTURES = {"Gemma3nForConditionalGeneration": "gemma3n"}

TOWERS = {"mobilenetv5_300m_enc": 294_126_912}
"""Parameters of timm's models, by the name that a file has for them."""

TOKENS = 256
"""Of one image (``vision_soft_tokens_per_image``)."""


def spec(config: Config) -> ModelSpec:
    """Every id is looked up in the tables for images and sounds, too.

    Raises:
        ModelError: the tower for images is not the one that is known.
    """
    text, seen, heard = vision.text_model(config), config.sub("vision_config"), config.sub("audio_config")
    name, width = seen.str("architecture"), vision.width_of(text)
    if name not in TOWERS:
        raise config.error(f"vision_config.architecture {name} is not known to memcalc: it knows {', '.join(TOWERS)}")
    others = (other(seen, "embed_vision", width), other(heard, "embed_audio", width))
    table = text.blocks[0].module
    assert isinstance(table, Embedding)
    inputs = table.inputs and replace(table.inputs, outer="rows")
    text = replace(text, blocks=(replace(text.blocks[0], module=replace(table, others=others, inputs=inputs)), *text.blocks[1:]))
    tower = Block("vision_tower", Parts((), (Weight("timm_model", (Axis(name, TOWERS[name]),)),)), role="tower_end")
    whole = vision.with_tower(config, text, (tower,), vision=Vision(1, tokens=TOKENS), untraced=(*text.untraced, vision.NOT_RUN))
    hidden, layers = Axis("hidden_size", heard.int("hidden_size")), heard.int("conf_num_hidden_layers")
    channels, bands = heard.ints("sscp_conv_channel_size"), heard.int("input_feat_size")
    return sound.with_ears(
        whole,
        ("audio_tower/subsample_conv_projection", subsample(hidden, channels, bands, names=("conv_0", "conv_1")), 1),
        ("audio_tower/conformer", conformer(heard, hidden, heads=heard.int("conf_num_attention_heads"), kernel=heard.int("conf_conv_kernel_size")), layers),
    )


def other(part: Config, name: str, width: Axis) -> OtherTokens:
    """A table of another kind of tokens."""
    own, ids = Axis("hidden_size", part.int("hidden_size")), Axis("vocab_size", part.int("vocab_size"))
    return OtherTokens(name, ids, Gemma4Norm(own), Gemma4Norm(own), Linear("embedding_projection", own, width), Gemma4Norm(width, "unscaled"))
