"""Qwen 3-Omni: Qwen 3-VL with experts that also hears, and a second model that speaks; only its text model is run.

Source: transformers, models/qwen3_omni_moe/modeling_qwen3_omni_moe.py, whose whole has no forward pass of its own: what is trained is the thinker.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm, RMSNorm
from memcalc.components.sound import WholeHead
from memcalc.components.vision import PackedEmbedding, Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _packed as packed
from memcalc.models.families import _sound as sound
from memcalc.models.families import _vision as vision
from memcalc.models.families import qwen3_moe
from memcalc.models.families.qwen2_5_omni import PLACE_BYTES, SPOKEN
from memcalc.specs.model import Axis, Component, ModelSpec, Weight

MODEL_TYPES = ("qwen3_omni_moe", "qwen3_omni_moe_thinker", "qwen3_omni_moe_text")
ARCHITECTURES = {"Qwen3OmniMoeForConditionalGeneration": "qwen3_omni_moe", "Qwen3OmniMoeThinkerForConditionalGeneration": "qwen3_omni_moe_thinker"}

CODE2WAV = 216_016_577
"""Parameters of the model that makes waves of the talker's codes, of the sizes in `WAVES`."""

WAVES = {"hidden_size": 1024, "num_hidden_layers": 8, "decoder_dim": 1536, "codebook_size": 2048}

SIDE, CONVS, HALVED = Axis("kernel", 3), 3, 8
"""Three convolutions over time and bands, each of which halves both."""


def spec(config: Config) -> ModelSpec:
    """The whole, its thinker, or that one's text model alone."""
    if config.model_type == "qwen3_omni_moe_text":
        config.data = {**config.data, "use_sliding_window": False}
        return packed.with_planes(qwen3_moe.spec(config), "interleaved")
    if config.model_type == "qwen3_omni_moe_thinker":
        return thinker(config)
    whole = replace(thinker(config.sub("thinker_config")), name=config.name, model_type=config.model_type)
    return with_speech(whole, config) if config.bool("enable_audio_output", default=True) else whole


def thinker(config: Config) -> ModelSpec:
    """A text model with two towers."""
    text, heard = vision.text_model(config, tied=config.bool("tie_word_embeddings", default=False)), config.sub("audio_config")
    blocks, sizes, _ = packed.qwen3_tower(config.sub("vision_config"))
    front = blocks[0].module
    assert isinstance(front, PackedEmbedding)
    whole = vision.with_tower(config, sound.with_head(text, WholeHead), blocks, vision=sizes, buffer_bytes=packed.buffer_bytes(front))
    hidden, inner = Axis("d_model", heard.int("d_model")), Axis("encoder_ffn_dim", heard.int("encoder_ffn_dim"))
    ends = (*counted.linears(hidden, hidden, "proj1", bias=True), *counted.linears(hidden, Axis("output_dim", heard.int("output_dim")), "proj2", bias=True))
    whole = sound.with_ears(
        replace(whole, untraced=(*whole.untraced, vision.NOT_RUN)),
        ("audio_tower", convolutions(heard, hidden), 1),
        ("audio_tower/layers", sound.whisper_layer(hidden, inner, key_bias=True), heard.int("encoder_layers")),
        ("audio_tower", (("ln_post", LayerNorm(hidden)), *ends), 1),
    )
    return replace(whole, buffer_bytes=whole.buffer_bytes + heard.int("max_source_positions") * int(hidden.size) * PLACE_BYTES)


def convolutions(part: Config, hidden: Axis) -> tuple[sound.Named, ...]:
    """Over time and bands of frequencies, and a projection of what is left of the bands."""
    channels = Axis("downsample_hidden_size", part.int("downsample_hidden_size"))
    found: list[sound.Named] = []
    for i in range(CONVS):
        shape = (channels, channels if i else Axis("1", 1), SIDE, SIDE)
        found.append((f"conv2d{i + 1}", Parts((), (Weight("weight", shape), Weight("bias", (channels,))))))
    left = channels.size * -(-part.int("num_mel_bins") // HALVED)
    return (*found, *counted.linears(Axis("channels * bands", left), hidden, "conv_out"))


def with_speech(whole: ModelSpec, config: Config) -> ModelSpec:
    """The model with its talker, what guesses the rest of each code, and what makes waves of them.

    Raises:
        ModelError: the last has other sizes than the released one.
    """
    part, waves = config.sub("talker_config"), config.sub("code2wav_config")
    odd = next((key for key, size in WAVES.items() if waves.int(key) != size), None)
    if odd:
        raise config.error(f"code2wav_config.{odd} {waves.int(odd)} is not known to memcalc: it knows {WAVES[odd]}")
    main, guesser = part.sub("text_config"), part.sub("code_predictor_config")
    sizes, small, codes = decoder.read_sizes(main), decoder.read_sizes(guesser, head_dim_follows=False), part.int("num_code_groups")
    thought, between = Axis("thinker_hidden_size", part.int("thinker_hidden_size")), sizes.intermediate
    pair = Parts((*counted.linears(thought, between, "linear_fc1", bias=True), *counted.linears(between, sizes.hidden, "linear_fc2", bias=True)))
    tables = tuple((f"code_predictor/{name}/{i}", table(small)) for name in ("model/codec_embedding", "lm_head") for i in range(codes - 1))
    ends = (("text_projection", pair), ("hidden_projection", pair), ("model/codec_embedding", table(sizes)), ("codec_head", table(sizes)))
    norms: tuple[sound.Named, ...] = (("model/norm", RMSNorm(sizes.hidden)), ("code_predictor/model/norm", RMSNorm(small.hidden)))
    spoken = sound.with_ears(
        replace(whole, untraced=()),
        ("talker", (*ends, *norms, *tables), 1),
        ("talker/model/layers", layer(sizes, experts(main, sizes)), sizes.num_layers),
        ("talker/code_predictor/model/layers", layer(small, decoder.gated_mlp(small, guesser.str("hidden_act"))), small.num_layers),
        ("code2wav", (("", Parts((), (Weight("all", (Axis("code2wav", CODE2WAV),)),))),), 1),
    )
    return replace(spoken, untraced=(*whole.untraced, SPOKEN))


def table(sizes: decoder.Sizes) -> Parts:
    """A row for each code."""
    return Parts((), (Weight("weight", (sizes.vocab, sizes.hidden)),))


def layer(sizes: decoder.Sizes, network: Component) -> tuple[sound.Named, ...]:
    """Qwen 3's attention, and a network."""
    norm, head = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim))
    attention = decoder.attention(sizes, q_norm=head, k_norm=head)
    return (("self_attn", attention), ("mlp", network), ("input_layernorm", norm), ("post_attention_layernorm", norm))


def experts(config: Config, sizes: decoder.Sizes) -> Parts:
    """Experts, and one that all tokens share."""
    hidden, count = sizes.hidden, moe.axis(config, "num_experts")
    shared = moe.swiglu(hidden, moe.axis(config, "shared_expert_intermediate_size"), config.str("hidden_act"))
    gates = (*counted.linears(hidden, count, "gate"), *counted.linears(hidden, Axis("1", 1), "shared_expert_gate"))
    return Parts((*gates, ("experts", moe.experts(config, hidden, moe.axis(config, "moe_intermediate_size"), count)), ("shared_expert", shared)))
