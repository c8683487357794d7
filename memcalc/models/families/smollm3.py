"""SmolLM 3: Llama's layer, without positions in every fourth.

Source: transformers, models/smollm3/modeling_smollm3.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("smollm3",)
ARCHITECTURES = {"SmolLM3ForCausalLM": "smollm3"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU; those without positions may see a window only.

    Raises:
        ModelError: ``no_rope_layers`` does not say of each layer whether it turns.
    """
    sizes = decoder.read_sizes(config)
    interval = config.int("no_rope_layer_interval", default=4)
    turned = config.ints("no_rope_layers", default=tuple(int((i + 1) % interval != 0) for i in range(sizes.num_layers)))
    if len(turned) != sizes.num_layers:
        raise config.error(f"no_rope_layers must hold 1 or 0 for each of the {sizes.num_layers} layers")
    window = config.optional_int("sliding_window", default=None) if config.bool("use_sliding_window", default=False) else None
    default = tuple(decoder.FULL if window is None or turns else decoder.SLIDING for turns in turned)
    kinds = config.kinds("layer_types", known=(decoder.FULL, decoder.SLIDING), count=sizes.num_layers, default=default)
    seen = tuple(window if kind == decoder.SLIDING else None for kind in kinds)
    norm, rotary = RMSNorm(sizes.hidden), Rotary(sizes.head_dim)
    bias, mlp = (
        config.bool("attention_bias", default=False),
        decoder.gated_mlp(sizes, config.str("hidden_act", default="silu"), bias=config.bool("mlp_bias", default=False)),
    )

    def layer(kind: tuple[int, int | None]) -> DecoderLayer:
        attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary, window=kind[1])
        return DecoderLayer(norm, attention if kind[0] else replace(attention, rotary=None), norm, mlp)

    return text.language_model(
        config,
        sizes,
        decoder.layer_blocks(zip(turned, seen, strict=True), layer),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=True)),
        norm=norm,
    )
