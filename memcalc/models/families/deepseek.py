"""DeepSeek-MoE, the first: Llama's layer with experts that are modules of their own and run one after the other.

Source: modeling_deepseek.py and configuration_deepseek.py, the code that comes with deepseek-ai/deepseek-moe-16b-base (`trust_remote_code`).
Its attention, and its buffers of rotary positions, are counted as those of transformers' Llama.
"""

from __future__ import annotations

from memcalc.components import RMSNorm
from memcalc.components.looped import BalancedRouter, ModuleMoE
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _moe as moe
from memcalc.models.families import _remote as remote
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("deepseek",)
ARCHITECTURES = {"DeepseekForCausalLM": "deepseek"}


def spec(config: Config) -> ModelSpec:
    """Routed experts in every ``moe_layer_freq``-th layer after the first ``first_k_dense_replace``, shared ones beside them."""
    sizes, activation = decoder.read_sizes(config), config.str("hidden_act", default="silu")
    norm, bias, sparse = RMSNorm(sizes.hidden), config.bool("attention_bias", default=False), config.has("n_routed_experts")
    layers = moe.layers(
        sparse_layers(config, sizes.num_layers),
        norm=norm,
        self_attn=decoder.attention(sizes, qkv_bias=bias, o_bias=bias),
        sparse=experts(config, sizes.hidden, activation) if sparse else None,
        dense=decoder.gated_mlp(sizes, activation),
    )
    whole = moe.remote(config, sizes, layers, norm=norm, tied=config.bool("tie_word_embeddings", default=False), sparse=sparse)
    return remote.presumed(whole, "transformers' Llama code outside its experts")


def sparse_layers(config: Config, num_layers: int) -> list[bool]:
    """Which layers hold experts."""
    if not config.has("n_routed_experts"):
        return [False] * num_layers
    first, every = config.int("first_k_dense_replace", default=0, minimum=0), config.int("moe_layer_freq", default=1)
    return [i >= first and i % every == 0 for i in range(num_layers)]


def experts(config: Config, hidden: Axis, activation: str) -> ModuleMoE:
    """The routed experts with their router, and the shared ones as one network."""
    count, width, shared = (
        moe.axis(config, "n_routed_experts"),
        moe.axis(config, "moe_intermediate_size"),
        config.optional_int("n_shared_experts", default=None),
    )
    if config.str("scoring_func", default="softmax") != "softmax":
        raise config.error("scoring_func is not softmax, the only one that this model's code has")
    balance = "sequence" if config.bool("seq_aux", default=True) else "tokens"
    router = BalancedRouter(
        "gate",
        hidden,
        count,
        moe.choose(config, count, "num_experts_per_tok"),
        normalise=config.bool("norm_topk_prob", default=False),
        balance=balance if config.float("aux_loss_alpha", default=0.001) > 0 else "nothing",
    )
    together = Axis("n_shared_experts * moe_intermediate_size", (shared or 0) * width.size)
    return ModuleMoE(router, moe.expert_modules(count, hidden, width, activation), moe.swiglu(hidden, together, activation) if shared else None)
