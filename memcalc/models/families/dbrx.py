"""DBRX: fused projections clamped to a range, and experts that run one after the other.

Source: transformers, models/dbrx/modeling_dbrx.py. Jitter on the router's input (``moe_jitter_eps``, off by default) is left out.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, LayerNorm, Rotary
from memcalc.components.looped import LoopedMoE
from memcalc.components.moe import Experts, SoftmaxRouter
from memcalc.models.config import Config
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("dbrx",)
ARCHITECTURES = {"DbrxForCausalLM": "dbrx"}


def spec(config: Config) -> ModelSpec:
    """Every layer has experts, three tensors of weights for all of them."""
    attention, network = config.sub("attn_config"), config.sub("ffn_config")
    hidden, heads = config.int("d_model", "hidden_size"), config.int("n_heads", "num_attention_heads")
    kv_heads = attention.int("kv_n_heads")
    if heads % kv_heads:
        raise config.error(f"n_heads {heads} is not a multiple of attn_config.kv_n_heads {kv_heads}")
    width, count = Axis("ffn_hidden_size", network.int("ffn_hidden_size")), Axis("moe_num_experts", network.int("moe_num_experts"))
    sizes = text.axes(
        hidden=hidden,
        intermediate=width.size,
        vocab=config.int("vocab_size"),
        layers=config.int("n_layers", "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )
    activation = network.get("ffn_act_fn") or {}
    router = SoftmaxRouter(
        "router",
        sizes.hidden,
        count,
        moe.choose(network, count, "moe_top_k"),
        inner="layer",
        normalise=network.optional_float("moe_normalize_expert_weights", default=1.0) is not None,
        wide=False,
        in_place=False,
    )
    norm, rotary = LayerNorm(sizes.hidden, bias=False), Rotary(sizes.head_dim)
    fused = text.fused_attention(sizes, "Wqkv", "out_proj", rotary=rotary)
    layer = DecoderLayer(
        input_layernorm=norm,
        self_attn=replace(fused, clamped=attention.optional_float("clip_qkv", default=None) is not None),
        post_attention_layernorm=norm,
        mlp=LoopedMoE(router, Experts(count, sizes.hidden, width, activation=str(activation.get("name", "silu")), fused=False)),
    )
    whole = text.language_model(
        config,
        sizes,
        (Block("blocks", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary),
        norm=norm,
        names=("wte", "norm_f", "lm_head"),
        max_positions=("max_seq_len", "max_position_embeddings"),
    )
    return moe.in_a_loop(moe.with_active(whole))
