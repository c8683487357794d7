"""K-EXAONE: pre-norm layers of EXAONE 4's attention, with DeepSeek-V3's experts.

Source: transformers, models/exaone_moe/modeling_exaone_moe.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.models.families.deepseek_v32 import sparse_layers
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("exaone_moe",)
ARCHITECTURES = {"ExaoneMoeForCausalLM": "exaone_moe"}


def spec(config: Config) -> ModelSpec:
    """Layers without a window, where others have one, have no positions; the first layers are dense."""
    sizes = decoder.read_sizes(config)
    norm, head_norm, rotary = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim)), Rotary(sizes.head_dim)
    window, kinds = (
        config.optional_int("sliding_window"),
        sparse_layers(config, sizes.num_layers, first=config.int("first_k_dense_replace", default=1, minimum=0)),
    )
    dense, sparse = decoder.gated_mlp(sizes, config.str("hidden_act")), experts(config, sizes.hidden)

    def layer(kind: tuple[bool, int | None]) -> DecoderLayer:
        is_sparse, seen = kind
        attention = decoder.attention(sizes, q_norm=head_norm, k_norm=head_norm, rotary=rotary, window=seen)
        if window is not None and seen is None:
            attention = replace(attention, rotary=None)
        return DecoderLayer(norm, attention, norm, sparse if is_sparse else dense)

    windows = text.layer_windows(config, sizes.num_layers, pattern=None, window=window)
    whole = decoder.causal_lm(config, sizes, decoder.layer_blocks(zip(kinds, windows, strict=True), layer), norm=norm)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sum(kinds)))
