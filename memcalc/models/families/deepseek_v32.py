"""DeepSeek V3.2: V3 whose attention sees only the keys that an indexer picks.

Source: transformers, models/deepseek_v32/modeling_deepseek_v32.py. Layers for multi-token prediction are not part of the model that it builds.
"""

from __future__ import annotations

from memcalc.components import LayerNorm, Linear, RMSNorm, Rotary
from memcalc.components.mla import Indexer
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("deepseek_v32",)
ARCHITECTURES = {"DeepseekV32ForCausalLM": "deepseek_v32"}


def spec(config: Config) -> ModelSpec:
    """The causal mask is always made, since the indexer reads it. The indexer takes no gradient."""
    sizes = latent.read_sizes(config, kv_heads_follow=False)
    common, rotary, norm = sizes.common, Rotary(sizes.rope, "pairs"), RMSNorm(sizes.common.hidden)
    kinds = sparse_layers(config, common.num_layers)
    sparse = experts(config, common.hidden)
    layers = moe.layers(
        kinds,
        norm=norm,
        self_attn=latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False), indexer=indexer(config, sizes)),
        sparse=sparse,
        dense=decoder.gated_mlp(common, config.str("hidden_act")),
    )
    whole = moe.with_masks(decoder.causal_lm(config, common, layers, norm=norm, rotary=rotary), None)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sum(kinds)))


def sparse_layers(config: Config, num_layers: int, *, first: int | None = None) -> tuple[bool, ...]:
    """Which layers have experts: as ``mlp_layer_types`` says, or all after the first dense ones.

    Args:
        config: the file.
        num_layers: how many.
        first: how many are dense where the file names no kinds; None: as it says itself.

    Raises:
        ModelError: it does not name one of the two kinds for each layer.
    """
    if not config.has("mlp_layer_types"):
        return moe.after_dense(config, num_layers) if first is None else tuple(i >= first for i in range(num_layers))
    kinds = config.strs("mlp_layer_types")
    if len(kinds) != num_layers or not {"dense", "sparse"} >= set(kinds):
        raise config.error(f"mlp_layer_types must name dense or sparse for each of the {num_layers} layers")
    return tuple(kind == "sparse" for kind in kinds)


def indexer(config: Config, sizes: latent.LatentSizes) -> Indexer:
    """Its own small projections beside the attention's."""
    if sizes.q_lora is None:
        raise config.error("q_lora_rank is null; the indexer reads the queries' latent")
    heads, dim, hidden = config.int("index_n_heads"), config.int("index_head_dim"), sizes.common.hidden
    if dim < sizes.rope:
        raise config.error(f"index_head_dim {dim} is less than qk_rope_head_dim {sizes.rope}")
    width = Axis("index_head_dim", dim)
    return Indexer(
        heads,
        dim,
        sizes.rope,
        config.int("index_topk"),
        wq_b=Linear("wq_b", sizes.q_lora, Axis("index_n_heads * index_head_dim", heads * dim)),
        wk=Linear("wk", hidden, width),
        k_norm=LayerNorm(width),
        weights_proj=Linear("weights_proj", hidden, Axis("index_n_heads", heads)),
    )
