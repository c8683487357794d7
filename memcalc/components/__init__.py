"""What a layer is made of: each component holds its sizes and names its weights. How it runs stands in `memcalc.code`."""

from memcalc.components.attention import Attention, Rotary
from memcalc.components.embedding import Alibi, Embedding
from memcalc.components.head import Head, MaskedHead
from memcalc.components.layer import DecoderLayer, ParallelLayer, PostNormLayer
from memcalc.components.linear import Conv1D, Linear, SeparateBiasLinear
from memcalc.components.mlp import MLP, GatedMLP
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.components.own_attention import BaichuanAttention, BloomAttention, FalconAttention, GPTNeoAttention, MptAttention

__all__ = [
    "MLP",
    "Alibi", "Attention",
    "BaichuanAttention",
    "BloomAttention",
    "Conv1D",
    "DecoderLayer",
    "Embedding",
    "FalconAttention",
    "GPTNeoAttention",
    "GatedMLP",
    "Head",
    "LayerNorm",
    "Linear",
    "MaskedHead",
    "MptAttention",
    "ParallelLayer",
    "PostNormLayer",
    "RMSNorm",
    "Rotary",
    "SeparateBiasLinear",
]  # fmt: skip
