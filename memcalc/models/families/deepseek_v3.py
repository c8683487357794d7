"""DeepSeek V3 and R1, and Kimi K2, which has their shape: latent attention, sigmoid scores with a correction, choice within groups.

Source: transformers, models/deepseek_v3/modeling_deepseek_v3.py. Layers for multi-token prediction (``num_nextn_predict_layers``) are not
part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import RMSNorm, Rotary
from memcalc.components.moe import MoE, SigmoidRouter
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("deepseek_v3", "kimi_k2")
ARCHITECTURES = {"DeepseekV3ForCausalLM": "deepseek_v3"}


def spec(config: Config) -> ModelSpec:
    """The first layers are dense, the others have experts."""
    sizes = latent.read_sizes(config)
    return model(config, sizes, moe.after_dense(config, sizes.common.num_layers))


def model(config: Config, sizes: latent.LatentSizes, kinds: tuple[bool, ...]) -> ModelSpec:
    """The whole model, with experts in the layers where `kinds` says so."""
    common = sizes.common
    rotary = Rotary(sizes.rope, "pairs" if config.bool("rope_interleave", default=True) else "half")
    norm, sparse = RMSNorm(common.hidden), experts(config, common.hidden)
    layers = moe.layers(
        kinds,
        norm=norm,
        self_attn=latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False)),
        sparse=sparse,
        dense=decoder.gated_mlp(common, config.str("hidden_act")),
    )
    whole = decoder.causal_lm(config, common, layers, norm=norm, rotary=rotary)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sum(kinds)))


def experts(config: Config, hidden: Axis) -> MoE:
    """Routed experts behind a sigmoid router in float32, and shared ones."""
    count, width = moe.axis(config, "n_routed_experts", "num_local_experts", "num_experts"), moe.axis(config, "moe_intermediate_size")
    return MoE(
        gate=SigmoidRouter(
            "gate",
            hidden,
            count,
            moe.choose(config, count, "num_experts_per_tok"),
            dtype="float32",
            groups=latent.groups(config, count),
            normalise=config.bool("norm_topk_prob"),
        ),
        experts=moe.experts(config, hidden, width, count),
        shared=moe.swiglu(
            hidden,
            Axis("n_shared_experts * moe_intermediate_size", config.int("n_shared_experts", "num_shared_experts") * width.size),
            config.str("hidden_act"),
        ),
    )


def correction_bytes(sparse: MoE) -> int:
    """The buffer ``e_score_correction_bias`` of one router, fp32."""
    return 4 * int(sparse.experts.count.size)
