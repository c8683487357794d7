"""Gemma 3, text alone: Gemma 2 with norms of queries and keys instead of soft-caps, five layers with windows to one without.

Source: transformers, models/gemma3/modeling_gemma3.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.models.families.gemma import SCALE_BYTES
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("gemma3_text",)
ARCHITECTURES = {"Gemma3ForCausalLM": "gemma3_text"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and GeGLU; layers with windows turn by angles of their own."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm, head_norm = RMSNorm(sizes.hidden, "gemma"), RMSNorm(Axis("head_dim", sizes.head_dim), "gemma")
    bias, mlp = config.bool("attention_bias", default=False), decoder.gated_mlp(sizes, config.str("hidden_activation", default="gelu_pytorch_tanh"))
    whole, local = Rotary(sizes.head_dim), Rotary(sizes.head_dim, name="local")

    def layer(window: int | None) -> DecoderLayer:
        rotary = whole if window is None else local
        attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm, rotary=rotary, window=window)
        return DecoderLayer(norm, attention, norm, mlp, post_mixer_norm=norm, post_mlp_norm=norm)

    pattern = config.int("sliding_window_pattern", "_sliding_window_pattern", default=6)
    kinds = text.layer_windows(config, sizes.num_layers, pattern=pattern, window=config.optional_int("sliding_window", default=4096))
    used = (whole if None in kinds else None, local if any(kinds) else None)
    tied = config.bool("tie_word_embeddings", default=True)
    lm_head = Linear("lm_head", sizes.hidden, sizes.vocab, split="column")
    return text.language_model(
        config,
        sizes,
        decoder.layer_blocks(kinds, layer),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=used[0], local_rotary=used[1], scaled=True, tied=tied),
        norm=norm,
        head=Head(lm_head, tied=tied, softcap=config.optional_float("final_logit_softcapping", default=None)),
        buffer_bytes=sum(decoder.rotary_buffer_bytes(r) for r in used if r) + SCALE_BYTES,
    )
