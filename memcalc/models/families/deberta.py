"""DeBERTa (He et al. 2020), its first version: one projection for queries, keys and values; counted, not run.

Source: transformers, models/deberta/modeling_deberta.py.
"""

from __future__ import annotations

from memcalc.components import LayerNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families._deberta import has_norm, head, kinds_of, sizes_of, table, table_rows
from memcalc.models.families.distilbert import ID_BYTES
from memcalc.specs.model import Axis, Block, Component, ModelSpec, Weight

MODEL_TYPES = ("deberta",)
ARCHITECTURES = {"DebertaForMaskedLM": "deberta"}


def spec(config: Config) -> ModelSpec:
    """BERT's layers, whose projection for distances stands in each, and the table of these in the encoder."""
    sizes, (kinds, relative) = sizes_of(config), kinds_of(config)
    hidden, norm, positions = sizes.hidden, LayerNorm(sizes.hidden), config.int("max_position_embeddings", default=512)
    out = Parts((*counted.linears(hidden, hidden, "dense", bias=True), ("LayerNorm", norm)))
    after = Parts((*counted.linears(sizes.intermediate, hidden, "dense", bias=True), ("LayerNorm", norm)))
    layer = Parts(
        (
            ("attention", Parts((("self", old_attention(hidden, kinds, relative=relative)), ("output", out)))),
            ("intermediate", Parts(counted.linears(hidden, sizes.intermediate, "dense", bias=True))),
            ("output", after),
        )
    )
    rows = Weight("rel_embeddings/weight", (Axis("2 * position_buckets", table_rows(config)), hidden))
    distances = Parts((("LayerNorm", norm),) if has_norm(config) else (), (rows,)) if relative else Parts()
    return counted.model(
        config,
        sizes,
        (Block("encoder/layer", layer, sizes.num_layers), Block("encoder", distances)),
        what="attention to distances",
        norm=None,
        embedding=table(config, sizes),
        head=head(config, sizes),
        names=("embeddings/word_embeddings", "", "cls/predictions"),
        buffer_bytes=positions * ID_BYTES,
        attentions=("eager",),
    )


def old_attention(hidden: Axis, kinds: tuple[str, ...], *, relative: bool) -> Parts:
    """Version 1: one projection for all three, with a bias for queries and values."""
    parts: list[tuple[str, Component]] = [*counted.linears(hidden, Axis("3 * hidden_size", 3 * hidden.size), "in_proj")]
    if relative and "c2p" in kinds:
        parts += counted.linears(hidden, hidden, "pos_proj")
    if relative and "p2c" in kinds:
        parts += counted.linears(hidden, hidden, "pos_q_proj", bias=True)
    return Parts(tuple(parts), counted.vectors(hidden, "q_bias", "v_bias"))
