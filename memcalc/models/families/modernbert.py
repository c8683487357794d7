"""ModernBERT: a pre-norm encoder with gated networks and rotary positions; two layers of three see a window on both sides.

Source: transformers, models/modernbert/modeling_modernbert.py.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, GatedMLP, LayerNorm, Linear, MaskedHead, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, ModelSpec

MODEL_TYPES = ("modernbert",)
ARCHITECTURES = {"ModernBertForMaskedLM": "modernbert"}


def spec(config: Config) -> ModelSpec:
    """Multi-head attention and GeGLU; the first layer has no norm before attention.

    Raises:
        ModelError: only masked tokens reach the head.
    """
    if config.bool("sparse_prediction", default=False):
        raise config.error("sparse_prediction true is not known to memcalc: how many tokens reach the head is up to the data")
    sizes = text.plain_sizes(config)
    norm = LayerNorm(sizes.hidden, bias=config.bool("norm_bias", default=False))
    whole, local = Rotary(sizes.head_dim, precision="all"), Rotary(sizes.head_dim, precision="all", name="local")
    bias, mlp_bias = config.bool("attention_bias", default=False), config.bool("mlp_bias", default=False)
    dropout = config.float("attention_dropout", default=0.0)
    mlp = GatedMLP(
        gate=Linear("Wi", sizes.hidden, Axis("2 * intermediate_size", 2 * sizes.intermediate.size), mlp_bias, "column"),
        up=None,
        down=Linear("Wo", sizes.intermediate, sizes.hidden, mlp_bias, "row"),
        activation=config.str("hidden_activation", default="gelu"),
    )

    def layer(kind: tuple[bool, int | None]) -> DecoderLayer:
        is_first, window = kind
        attention = text.fused_attention(
            sizes,
            "Wqkv",
            "Wo",
            bias=bias,
            o_bias=bias,
            layout="thirds",
            rotary=whole if window is None else local,
            window=window,
            causal=False,
            dropout=dropout,
        )
        return DecoderLayer(None if is_first else norm, attention, norm, mlp)

    windows = seen(config, sizes.num_layers)
    used = (whole if None in windows else None, local if any(windows) else None)
    tied = config.bool("tie_word_embeddings", default=True)
    return text.language_model(
        config,
        sizes,
        decoder.layer_blocks([(i == 0, window) for i, window in enumerate(windows)], layer),
        embedding=Embedding(
            sizes.vocab,
            sizes.hidden,
            rotary=used[0],
            local_rotary=used[1],
            tied=tied,
            norm=norm,
            dropout=config.float("embedding_dropout", default=0.0),
            style="bert",
        ),
        norm=norm,
        head=MaskedHead(
            dense=Linear("dense", sizes.hidden, sizes.hidden, config.bool("classifier_bias", default=False)),
            norm=norm,
            proj=Linear("decoder", sizes.hidden, sizes.vocab, config.bool("decoder_bias", default=True), "column"),
            activation=config.str("classifier_activation", default="gelu"),
            tied=tied,
            upcast=True,
        ),
        names=("embeddings/tok_embeddings", "final_norm", "head"),
    )


def seen(config: Config, num_layers: int) -> tuple[int | None, ...]:
    """What each layer sees: all, or half of ``local_attention`` on each side.

    Raises:
        ModelError: ``layer_types`` is not one known kind for each layer.
    """
    every = config.int("global_attn_every_n_layers", default=3)
    usual = tuple(decoder.SLIDING if i % every else decoder.FULL for i in range(num_layers))
    window = config.int("local_attention", default=128) // 2 + 1
    kinds = config.kinds("layer_types", known=(decoder.FULL, decoder.SLIDING), count=num_layers, default=usual)
    return tuple(window if kind == decoder.SLIDING else None for kind in kinds)
