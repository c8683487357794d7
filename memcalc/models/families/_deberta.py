"""What the versions of DeBERTa share: tables, the head, and how their files speak of distances."""

from __future__ import annotations

from memcalc.components import Embedding, LayerNorm, Linear, MaskedHead
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families._decoder import Sizes


def sizes_of(config: Config) -> Sizes:
    """Those of an encoder.

    Raises:
        ModelError: its tables have another width.
    """
    sizes = text.plain_sizes(config)
    width = config.optional_int("embedding_size", default=None) or sizes.hidden.size
    if width != sizes.hidden.size:
        raise config.error(f"embedding_size {width} beside hidden_size {sizes.hidden.size} is not known to memcalc for this family")
    return sizes


def kinds_of(config: Config) -> tuple[tuple[str, ...], bool]:
    """Which scores take distances into account, and whether any do."""
    kinds = config.get("pos_att_type") or ()
    return tuple(kinds.split("|") if isinstance(kinds, str) else kinds), config.bool("relative_attention", default=False)


def table(config: Config, sizes: Sizes, *, dropout: float = 0.0) -> Embedding:
    """Tokens, and positions and types where the file wants them."""
    positions = config.int("max_position_embeddings", default=512)
    return Embedding(
        sizes.vocab,
        sizes.hidden,
        positions=positions if config.bool("position_biased_input", default=True) else 0,
        token_types=config.int("type_vocab_size", default=0, minimum=0),
        tied=config.bool("tie_word_embeddings", default=True),
        norm=LayerNorm(sizes.hidden),
        dropout=dropout,
        style="bert",
    )


def head(config: Config, sizes: Sizes) -> MaskedHead:
    """BERT's."""
    hidden, tied = sizes.hidden, config.bool("tie_word_embeddings", default=True)
    dense, proj = Linear("dense", hidden, hidden, bias=True), Linear("decoder", hidden, sizes.vocab, bias=True, split="column")
    return MaskedHead(dense, LayerNorm(hidden), proj, activation=config.str("hidden_act", default="gelu"), tied=tied, loose_bias=not tied)


def table_rows(config: Config) -> int:
    """Rows of the table of distances that all layers share.

    Raises:
        ModelError: the file wants a convolution, which memcalc does not know.
    """
    if config.int("conv_kernel_size", default=0, minimum=0):
        raise config.error("conv_kernel_size is not known to memcalc for this family")
    most = config.int("max_relative_positions", default=-1, minimum=-1)
    most = config.int("max_position_embeddings", default=512) if most < 1 else most
    buckets = config.int("position_buckets", default=-1, minimum=-1)
    return 2 * (buckets if buckets > 0 else most)


def has_norm(config: Config) -> bool:
    """Whether that table is normalised."""
    return "layer_norm" in config.str("norm_rel_ebd", default="none")
