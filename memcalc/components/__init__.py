"""What a layer is made of: each component holds its sizes and names its weights. How it runs stands in `memcalc.code`."""

from memcalc.components.attention import Attention, Rotary
from memcalc.components.head import Embedding, Head
from memcalc.components.layer import DecoderLayer
from memcalc.components.linear import Linear
from memcalc.components.mlp import MLP, GatedMLP
from memcalc.components.norm import LayerNorm, RMSNorm

__all__ = ["MLP", "Attention", "DecoderLayer", "Embedding", "GatedMLP", "Head", "LayerNorm", "Linear", "RMSNorm", "Rotary"]
