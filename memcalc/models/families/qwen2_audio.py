"""Qwen 2-Audio and Voxtral: a text model beside Whisper's encoder, which is counted and not run.

Source: transformers, models/qwen2_audio/modeling_qwen2_audio.py and models/voxtral/modeling_voxtral.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm
from memcalc.components.sound import ShiftedHead
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _sound as sound
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("qwen2_audio", "voxtral")
ARCHITECTURES = {"Qwen2AudioForConditionalGeneration": "qwen2_audio", "VoxtralForConditionalGeneration": "voxtral"}


def spec(config: Config) -> ModelSpec:
    """Voxtral joins several tokens of the encoder, and holds its positions in fp32."""
    whole = config if config.has("tie_word_embeddings") else config.sub("text_config")
    text, part, of_voxtral = vision.text_model(config, tied=whole.bool("tie_word_embeddings")), config.sub("audio_config"), config.model_type == "voxtral"
    hidden, inner = Axis("d_model", part.int("d_model", "hidden_size")), Axis("encoder_ffn_dim", part.int("encoder_ffn_dim", "intermediate_size"))
    layers, width = part.int("encoder_layers", "num_hidden_layers"), vision.width_of(text)
    joined = (*counted.linears(inner, width, "linear_1"), *counted.linears(width, width, "linear_2"))
    text = text if of_voxtral else sound.with_head(text, ShiftedHead)
    return sound.with_ears(
        replace(text, name=config.name, model_type=config.model_type),
        ("audio_tower", sound.whisper_front(part, hidden), 1),
        ("audio_tower/layers", sound.whisper_layer(hidden, inner), layers),
        ("audio_tower", (("layer_norm", LayerNorm(hidden)),), 1),
        ("multi_modal_projector", joined if of_voxtral else counted.linears(hidden, width, "linear", bias=True), 1),
        own=(sound.places(part, hidden, dtype="float32" if of_voxtral else None),),
    )
