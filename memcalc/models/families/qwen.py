"""Qwen, the first: one projection for queries, keys and values with a bias, a network half as wide as ``intermediate_size``.

Source: modeling_qwen.py and configuration_qwen.py, the code that comes with Qwen/Qwen-7B (`trust_remote_code`).
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _remote as remote
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("qwen",)
ARCHITECTURES = {"QWenLMHeadModel": "qwen"}


def spec(config: Config) -> ModelSpec:
    """Heads are ``kv_channels`` wide; gate and up have half of ``intermediate_size`` each."""
    sizes = text.axes(
        hidden=config.int("hidden_size"),
        intermediate=remote.divided(config, config.int("intermediate_size"), 2, "gate and up share intermediate_size"),
        vocab=config.int("vocab_size"),
        layers=config.int("num_hidden_layers"),
        heads=config.int("num_attention_heads"),
        head_dim=config.int("kv_channels"),
    )
    norm, bias = RMSNorm(sizes.hidden), not config.bool("no_bias", default=True)
    layer = DecoderLayer(
        norm,
        remote.fused_heads(sizes, ("c_attn", "c_proj"), bias=True, out_bias=bias),
        norm,
        remote.gated(sizes, ("w2", "w1", "c_proj"), bias=bias),
    )
    whole = remote.causal_lm(config, sizes, (Block("h", layer, sizes.num_layers),), norm=norm, names=("wte", "ln_f", "lm_head"))
    return remote.presumed(whole, "transformers' Llama code with one projection for queries, keys and values")
