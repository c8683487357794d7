"""InternLM 2 and 2.5: Llama with one projection for queries, keys and values, and names of its own.

Source: modeling_internlm2.py and configuration_internlm2.py, the code that comes with internlm/internlm2_5-7b-chat (`trust_remote_code`).
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, RMSNorm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _remote as remote
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("internlm2",)
ARCHITECTURES = {"InternLM2ForCausalLM": "internlm2"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and SwiGLU; ``bias`` is that of the attention's projections."""
    sizes, bias = decoder.read_sizes(config), config.bool("bias")
    norm, mlp = RMSNorm(sizes.hidden), remote.gated(sizes, ("w1", "w3", "w2"), activation=config.str("hidden_act", default="silu"))
    layer = DecoderLayer(norm, remote.fused_heads(sizes, ("wqkv", "wo"), bias=bias, out_bias=bias), norm, mlp)
    whole = remote.causal_lm(config, sizes, (Block("layers", layer, sizes.num_layers),), norm=norm, names=("tok_embeddings", "norm", "output"))
    return remote.presumed(whole, "transformers' Llama code with one projection for queries, keys and values")
