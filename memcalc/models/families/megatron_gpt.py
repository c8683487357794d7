"""GPT as Megatron-core builds it from flags: the keys are the names of its arguments, and what is left out is as there.

Source: megatron/training/arguments.py; megatron/core/transformer/transformer_config.py; megatron/core/models/gpt/gpt_layer_specs.py.
"""

from __future__ import annotations

from memcalc.components import MLP, DecoderLayer, Embedding, GatedMLP, Rotary
from memcalc.components.moe import MoE
from memcalc.errors import InputError
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _megatron as megatron
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("megatron_gpt",)
ARCHITECTURES: dict[str, str] = {}
POSITIONS = {"learned_absolute": False, "rope": True, "yarn": True, "mrope": True, "none": False}
"""Kinds of positions, and whether they are rotary."""
SWIGLU_ROUNDING = 64
"""To a multiple of this a gated network is two thirds as wide as one without gate (arguments.py, validate_args)."""


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of any of Megatron's attentions, networks and experts.

    Raises:
        ModelError: a size is missing or impossible, or a kind is not known.
    """
    sizes, norm = _sizes(config), megatron.norm(config, "hidden_size", config.int("hidden_size"))
    positions = config.str("position_embedding_type", default="learned_absolute")
    if positions not in POSITIONS:
        raise config.error(f"position_embedding_type {positions!r} is not known; known: {', '.join(POSITIONS)}")
    turned = int(sizes.head_dim * config.float("rotary_percent", default=1.0)) if POSITIONS[positions] else 0
    rotary = Rotary(turned) if turned else None
    dropout, tied = config.float("hidden_dropout", default=0.1), not config.bool("untie_embeddings_and_output_weights", default=False)
    dense, sparse = megatron.network(config, sizes.hidden, sizes.intermediate), megatron.experts(config, sizes)
    self_attn = megatron.attention(config, sizes, rotary)

    def layer(mlp: MLP | GatedMLP | MoE) -> DecoderLayer:
        return DecoderLayer(input_layernorm=norm, self_attn=self_attn, post_attention_layernorm=norm, mlp=mlp, dropout=dropout)

    kinds = (False,) * sizes.num_layers if sparse is None else tuple(bool(kind) for kind in config.ints("moe_layers"))
    if len(kinds) != sizes.num_layers:
        raise config.error(f"moe_layers names {len(kinds)} layers of {sizes.num_layers}")
    whole = text.language_model(
        config,
        sizes,
        decoder.layer_blocks([sparse if sparse is not None and kind else dense for kind in kinds], layer),
        embedding=Embedding(
            sizes.vocab,
            sizes.hidden,
            rotary=rotary,
            positions=config.int("max_position_embeddings") if positions == "learned_absolute" else 0,
            tied=tied,
            dropout=dropout,
        ),
        norm=norm,
    )
    return moe.with_active(whole) if sparse is not None else whole


# ---------------------------------------------------------------------- inside
def _sizes(config: Config) -> decoder.Sizes:
    hidden, heads = config.int("hidden_size"), config.int("num_attention_heads")
    groups = config.int("num_query_groups", default=heads)
    if heads % groups:
        raise config.error(f"num_attention_heads {heads} is not a multiple of num_query_groups {groups}")
    width = 4 * hidden if not config.bool("swiglu", default=False) else 4 * hidden * 2 // 3 // SWIGLU_ROUNDING * SWIGLU_ROUNDING
    channels = config.optional_int("kv_channels", default=None) or text.whole_heads(config, hidden, heads)
    return text.axes(
        hidden=hidden,
        intermediate=config.int("ffn_hidden_size", default=width),
        vocab=_vocabulary(config),
        layers=config.int("num_layers"),
        heads=heads,
        kv_heads=groups,
        head_dim=channels,
    )


def _vocabulary(config: Config) -> int:
    """As said, or of the model whose tokenizer is named."""
    if config.has("vocab_size") or not config.has("tokenizer_model"):
        return config.int("vocab_size")
    from memcalc.models.read import read_model

    name = config.str("tokenizer_model")
    try:
        found = read_model(name).vocab_size
    except InputError as error:
        raise config.error(f"vocab_size is that of the tokenizer of {name}, which is not known ({error}); give vocab_size") from None
    config.assumed.setdefault(f"the model {name}, whose tokenizer it is", []).append(f"vocab_size {found}")
    return found
