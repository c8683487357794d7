"""FlexOlmo: OLMo 2's layer with OLMoE's experts.

Source: transformers, models/flex_olmo/modeling_flex_olmo.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, RMSNorm, Rotary
from memcalc.components.moe import MoE, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.models.families.olmo2 import olmo_layer
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("flex_olmo",)
ARCHITECTURES = {"FlexOlmoForCausalLM": "flex_olmo"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts, and norms after its branches only."""
    sizes, count = decoder.read_sizes(config), moe.axis(config, "num_experts", "num_local_experts")
    rotary = Rotary(sizes.head_dim, precision="angles")
    chosen, normalise = moe.choose(config, count, "num_experts_per_tok"), config.bool("norm_topk_prob", default=False)
    router = SoftmaxRouter("gate", sizes.hidden, count, chosen, normalise=normalise, cast_back=True)
    sparse = MoE(router, moe.experts(config, sizes.hidden, sizes.intermediate, count))
    layer = replace(olmo_layer(config, sizes, rotary, window=None), mlp=sparse)
    whole = text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=config.bool("tie_word_embeddings", default=False)),
        norm=RMSNorm(sizes.hidden, "fp32_scale"),
    )
    return moe.with_active(whole)
