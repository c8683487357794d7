"""DeBERTa, and its versions 2 and 3 (He et al. 2020): BERT whose scores take distances between tokens into account; counted, not run.

Source: transformers, models/deberta_v2/modeling_deberta_v2.py, models/deberta/modeling_deberta.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, LayerNorm, Linear, MaskedHead
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families.bert import encoder_sizes
from memcalc.models.families.distilbert import ID_BYTES
from memcalc.specs.model import Axis, Block, Component, ModelSpec, Weight

MODEL_TYPES = ("deberta-v2", "deberta")
ARCHITECTURES = {"DebertaV2ForMaskedLM": "deberta-v2", "DebertaForMaskedLM": "deberta"}


def spec(config: Config) -> ModelSpec:
    """A table of distances for all layers; of positions and token types only where the file wants them."""
    sizes, norm, kinds = encoder_sizes(config), LayerNorm(Axis("hidden_size", config.int("hidden_size"))), config.get("pos_att_type") or ()
    hidden, relative = sizes.hidden, config.bool("relative_attention", default=False)
    width = Axis("embedding_size", config.optional_int("embedding_size", default=None) or hidden.size)
    if width.size != hidden.size:
        raise config.error(f"embedding_size {width.size} beside hidden_size {hidden.size} is not known to memcalc for this family")
    kinds = tuple(kinds.split("|") if isinstance(kinds, str) else kinds)
    attention = old_attention(hidden, kinds, relative=relative) if config.model_type == "deberta" else new_attention(config, hidden, kinds, relative=relative)
    out = Parts((*counted.linears(hidden, hidden, "dense", bias=True), ("LayerNorm", norm)))
    after = Parts((*counted.linears(sizes.intermediate, hidden, "dense", bias=True), ("LayerNorm", norm)))
    layer = Parts(
        (
            ("attention", Parts((("self", attention), ("output", out)))),
            ("intermediate", Parts(counted.linears(hidden, sizes.intermediate, "dense", bias=True))),
            ("output", after),
        )
    )
    tied, positions = config.bool("tie_word_embeddings", default=True), config.int("max_position_embeddings", default=512)
    whole = counted.model(
        config,
        sizes,
        (Block("encoder/layer", layer, sizes.num_layers), Block("encoder", Parts(*distances(config, hidden, positions, relative=relative)))),
        what="attention to distances",
        norm=None,
        embedding=Embedding(
            sizes.vocab,
            hidden,
            positions=positions if config.bool("position_biased_input", default=True) else 0,
            token_types=config.int("type_vocab_size", default=0, minimum=0),
            tied=tied,
            norm=norm,
            style="bert",
        ),
        head=MaskedHead(Linear("dense", hidden, width, bias=True), norm, Linear("decoder", hidden, sizes.vocab, bias=True, split="column"), tied=tied),
        names=("embeddings/word_embeddings", "", "cls/predictions"),
        buffer_bytes=positions * ID_BYTES,
    )
    return replace(whole, attentions=("eager",))


def new_attention(config: Config, hidden: Axis, kinds: tuple[str, ...], *, relative: bool) -> Parts:
    """Version 2 and 3: three projections, and two more for distances unless they use the tokens' own."""
    own = relative and not config.bool("share_att_key", default=False)
    of_distances = [name for name, kind in (("pos_key_proj", "c2p"), ("pos_query_proj", "p2c")) if own and kind in kinds]
    return Parts(counted.linears(hidden, hidden, "query_proj", "key_proj", "value_proj", *of_distances, bias=True))


def old_attention(hidden: Axis, kinds: tuple[str, ...], *, relative: bool) -> Parts:
    """Version 1: one projection for all three, with a bias for queries and values."""
    parts: list[tuple[str, Component]] = [*counted.linears(hidden, Axis("3 * hidden_size", 3 * hidden.size), "in_proj")]
    if relative and "c2p" in kinds:
        parts += counted.linears(hidden, hidden, "pos_proj")
    if relative and "p2c" in kinds:
        parts += counted.linears(hidden, hidden, "pos_q_proj", bias=True)
    return Parts(tuple(parts), counted.vectors(hidden, "q_bias", "v_bias"))


def distances(config: Config, hidden: Axis, positions: int, *, relative: bool) -> tuple[tuple[tuple[str, Component], ...], tuple[Weight, ...]]:
    """The table that all layers share, its norm, and a convolution, as parts and weights of the encoder.

    Raises:
        ModelError: the file wants a convolution, which memcalc does not know.
    """
    if config.int("conv_kernel_size", default=0, minimum=0):
        raise config.error("conv_kernel_size is not known to memcalc for this family")
    if not relative:
        return (), ()
    most = config.int("max_relative_positions", default=-1, minimum=-1)
    most = positions if most < 1 else most
    buckets = config.int("position_buckets", default=-1, minimum=-1)
    rows = Axis("2 * position_buckets", 2 * (buckets if buckets > 0 else most))
    normed = "layer_norm" in config.str("norm_rel_ebd", default="none")
    return ((("LayerNorm", LayerNorm(hidden)),) if normed else ()), (Weight("rel_embeddings/weight", (rows, hidden)),)
