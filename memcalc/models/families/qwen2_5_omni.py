"""Qwen 2.5-Omni: Qwen 2.5-VL that also hears, and a second model that speaks; only its text model is run.

Source: transformers, models/qwen2_5_omni/modeling_qwen2_5_omni.py, whose whole has no forward pass of its own: what is trained is the thinker.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm, RMSNorm
from memcalc.components.sound import WholeHead
from memcalc.components.vision import Join, Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _packed as packed
from memcalc.models.families import _sound as sound
from memcalc.models.families import _vision as vision
from memcalc.models.families import qwen2, qwen2_5_vl
from memcalc.specs.model import Axis, ModelSpec, Weight

MODEL_TYPES = ("qwen2_5_omni", "qwen2_5_omni_thinker", "qwen2_5_omni_text")
ARCHITECTURES = {"Qwen2_5OmniModel": "qwen2_5_omni", "Qwen2_5OmniForConditionalGeneration": "qwen2_5_omni"}

TOKEN2WAV = 449_051_264
"""Parameters of the model that makes waves of the talker's tokens, of the sizes in `WAVES`; it is held in fp32."""

WAVES = {"dit_config": {"hidden_size": 1024, "num_hidden_layers": 22, "ff_mult": 2, "emb_dim": 512}, "bigvgan_config": {"upsample_initial_channel": 1536}}

SPOKEN = "the talker, and what makes waves of its tokens"

PLACE_BYTES = 4
"""Of an element of the given positions, which are a buffer."""


def spec(config: Config) -> ModelSpec:
    """The whole, its thinker, or that one's text model alone."""
    if config.model_type == "qwen2_5_omni_text":
        return packed.with_planes(qwen2.spec(config), "joined")
    if config.model_type == "qwen2_5_omni_thinker":
        return thinker(config)
    whole = replace(thinker(config.sub("thinker_config")), name=config.name, model_type=config.model_type)
    return with_speech(whole, config) if config.bool("enable_audio_output", default=True) else whole


def thinker(config: Config) -> ModelSpec:
    """A text model with two towers."""
    text, seen, heard = (
        vision.text_model(config, tied=config.bool("tie_word_embeddings", default=False)),
        config.sub("vision_config"),
        config.sub("audio_config"),
    )
    text = sound.with_head(text, WholeHead)
    front, blocks = qwen2_5_vl.tower(seen)
    whole = vision.with_tower(config, text, blocks, vision=packed.sizes_of(seen), join=Join(listed=True), buffer_bytes=packed.buffer_bytes(front))
    hidden, inner = Axis("d_model", heard.int("d_model")), Axis("encoder_ffn_dim", heard.int("encoder_ffn_dim"))
    out = Axis("output_dim", heard.int("output_dim"))
    whole = sound.with_ears(
        replace(whole, untraced=(*whole.untraced, vision.NOT_RUN)),
        ("audio_tower", sound.whisper_front(heard, hidden), 1),
        ("audio_tower/layers", sound.whisper_layer(hidden, inner), heard.int("encoder_layers")),
        ("audio_tower", (("ln_post", LayerNorm(hidden)), *counted.linears(hidden, out, "proj", bias=True)), 1),
        own=(Weight("audio_bos_eos_token/weight", (Axis("2", 2), out)),),
    )
    return replace(whole, buffer_bytes=whole.buffer_bytes + heard.int("max_source_positions") * int(hidden.size) * PLACE_BYTES)


def with_speech(whole: ModelSpec, config: Config) -> ModelSpec:
    """The model with its talker, a smaller Qwen 2 on the thinker's states, and what makes waves of its tokens.

    Raises:
        ModelError: the latter has other sizes than the released ones.
    """
    part, waves = config.sub("talker_config"), config.sub("token2wav_config")
    for name, sizes in WAVES.items():
        own = waves.sub(name)
        odd = next((key for key, size in sizes.items() if own.int(key) != size), None)
        if odd:
            raise config.error(f"token2wav_config.{name}.{odd} {own.int(odd)} is not known to memcalc: it knows {sizes[odd]}")
    sizes_of, seen = decoder.read_sizes(part, head_dim_follows=False), Axis("embedding_size", part.int("embedding_size"))
    attention = decoder.attention(sizes_of, qkv_bias=True)
    norm, hidden, vocab = RMSNorm(sizes_of.hidden), sizes_of.hidden, sizes_of.vocab
    network = decoder.gated_mlp(sizes_of, part.str("hidden_act"))
    layer = (("self_attn", attention), ("mlp", network), ("input_layernorm", norm), ("post_attention_layernorm", norm))
    table = Parts((), (Weight("weight", (vocab, seen), (("vocab", 0),)),))
    ends = (*counted.linears(seen, hidden, "thinker_to_talker_proj", bias=True), ("model/embed_tokens", table), ("model/norm", norm))
    spoken = sound.with_ears(
        replace(whole, untraced=()),
        ("talker", (*ends, *counted.linears(hidden, vocab, "codec_head")), 1),
        ("talker/model/layers", layer, sizes_of.num_layers),
        ("token2wav", (("", Parts((), (Weight("all", (Axis("token2wav", TOKEN2WAV),), dtype="float32"),))),), 1),
    )
    return replace(spoken, untraced=(*whole.untraced, SPOKEN))
