"""EXAONE 4: norms after the branches only, and of each head; layers without a window, where others have one, have no positions.

Source: transformers, models/exaone4/modeling_exaone4.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("exaone4",)
ARCHITECTURES = {"Exaone4ForCausalLM": "exaone4"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and SwiGLU."""
    sizes = decoder.read_sizes(config)
    norm, head_norm, rotary = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim)), Rotary(sizes.head_dim)
    window, mlp = config.optional_int("sliding_window", default=4096), decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"))

    def layer(seen: int | None) -> DecoderLayer:
        attention = decoder.attention(sizes, q_norm=head_norm, k_norm=head_norm, rotary=rotary, window=seen)
        if window is not None and seen is None:
            attention = replace(attention, rotary=None)
        return DecoderLayer(None, attention, None, mlp, post_mixer_norm=norm, post_mlp_norm=norm)

    return text.language_model(
        config,
        sizes,
        decoder.layer_blocks(kinds(config, sizes.num_layers, window), layer),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=norm,
    )


def kinds(config: Config, num_layers: int, window: int | None) -> tuple[int | None, ...]:
    """What each layer sees; a pattern in letters (``LLLG``) is as long as it is."""
    if window is None:
        return (None,) * num_layers
    pattern = config.get("sliding_window_pattern")
    length = len(pattern) if isinstance(pattern, str) else config.int("sliding_window_pattern", default=4)
    return text.layer_windows(config, num_layers, pattern=length, window=window)
