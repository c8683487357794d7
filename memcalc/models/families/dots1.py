"""dots.llm1: Qwen 3's attention, DeepSeek-V3's experts.

Source: transformers, models/dots1/modeling_dots1.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("dots1",)
ARCHITECTURES = {"Dots1ForCausalLM": "dots1"}


def spec(config: Config) -> ModelSpec:
    """The first layers are dense; upper layers may see a window only."""
    sizes = decoder.read_sizes(config)
    norm, head_norm, bias = RMSNorm(sizes.hidden), RMSNorm(Axis("head_dim", sizes.head_dim)), config.bool("attention_bias")
    dense, sparse = decoder.gated_mlp(sizes, config.str("hidden_act")), experts(config, sizes.hidden)
    windows = text.layer_windows(config, sizes.num_layers, pattern=None, window=config.optional_int("sliding_window"))
    kinds = moe.after_dense(config, sizes.num_layers)

    def layer(kind: tuple[bool, int | None]) -> DecoderLayer:
        is_sparse, window = kind
        attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, q_norm=head_norm, k_norm=head_norm, window=window)
        return DecoderLayer(norm, attention, norm, sparse if is_sparse else dense)

    whole = decoder.causal_lm(config, sizes, decoder.layer_blocks(zip(kinds, windows, strict=True), layer), norm=norm)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sum(kinds)))
