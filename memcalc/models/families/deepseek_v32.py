"""DeepSeek V3.2, and GLM-5: V3 whose attention sees only the keys that an indexer picks, in the same layer or in an earlier one.

Source: transformers, models/deepseek_v32/modeling_deepseek_v32.py, models/glm_moe_dsa/modeling_glm_moe_dsa.py. Layers for multi-token prediction are
not part of the model that these build.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.components.mla import Indexer
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _latent as latent
from memcalc.models.families import _moe as moe
from memcalc.models.families.deepseek_v3 import correction_bytes, experts
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("deepseek_v32", "glm_moe_dsa")
ARCHITECTURES = {"DeepseekV32ForCausalLM": "deepseek_v32", "GlmMoeDsaForCausalLM": "glm_moe_dsa"}


def spec(config: Config) -> ModelSpec:
    """The causal mask is always made, since the indexer reads it. The indexer takes no gradient."""
    sizes = latent.read_sizes(config, kv_heads_follow=False)
    common, rotary, norm = sizes.common, Rotary(sizes.rope, "pairs"), RMSNorm(sizes.common.hidden)
    kinds, sparse = sparse_layers(config, common.num_layers), experts(config, common.hidden)
    own, dense = indexer(config, sizes), decoder.gated_mlp(common, config.str("hidden_act"))
    plain = latent.attention(sizes, rotary, bias=config.bool("attention_bias", default=False))

    def layer(kind: tuple[bool, bool, bool | None]) -> DecoderLayer:
        is_sparse, picks, fresh = kind
        mixer = replace(plain, indexer=own if picks else None, follows=0 if fresh is None else own.top_k, fresh=bool(fresh))
        return DecoderLayer(norm, mixer, norm, sparse if is_sparse else dense)

    picks = picking_layers(config, common.num_layers)
    passed_on = (None, *picks[:-1]) if config.model_type == "glm_moe_dsa" else (None,) * common.num_layers
    layers = decoder.layer_blocks(zip(kinds, picks, passed_on, strict=True), layer)
    whole = moe.with_masks(decoder.causal_lm(config, common, layers, norm=norm, rotary=rotary), None)
    return moe.with_active(moe.with_buffers(whole, correction_bytes(sparse) * sum(kinds)))


def picking_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers have an indexer: all of DeepSeek's; of GLM-5's those that ``indexer_types`` calls full, or as older files spell that.

    Raises:
        ModelError: the kinds are not full or shared for each layer, or nothing stands before the first shared one.
    """
    if config.model_type != "glm_moe_dsa":
        return (True,) * num_layers
    freq, offset = config.int("index_topk_freq", default=1), config.int("index_skip_topk_offset", default=2, minimum=0)
    default = tuple("full" if max(i - offset + 1, 0) % freq == 0 else "shared" for i in range(num_layers))
    pattern = config.get("index_topk_pattern", default)
    named = tuple({"F": "full", "S": "shared"}.get(kind, kind) for kind in pattern)
    kinds = config.kinds("indexer_types", known=("full", "shared"), count=num_layers, default=named)
    if kinds[0] != "full":
        raise config.error("indexer_types begins with shared, and no layer before has picked keys")
    return tuple(kind == "full" for kind in kinds)


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
    return tuple(kind == "sparse" for kind in config.kinds("mlp_layer_types", known=("dense", "sparse"), count=num_layers))


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
        style="pairs" if config.model_type == "glm_moe_dsa" else "half",
    )
