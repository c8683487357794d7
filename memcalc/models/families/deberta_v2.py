"""DeBERTa 2 and 3 (He et al. 2020): BERT whose scores take distances between tokens into account.

Source: transformers, models/deberta_v2/modeling_deberta_v2.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import MLP, LayerNorm, Linear, PostNormLayer
from memcalc.components.deberta import DisentangledAttention, Distances
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families._deberta import has_norm, head, kinds_of, sizes_of, table, table_rows
from memcalc.models.families._decoder import Sizes
from memcalc.models.families.distilbert import ID_BYTES
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("deberta-v2",)
ARCHITECTURES = {"DebertaV2ForMaskedLM": "deberta-v2"}


def spec(config: Config) -> ModelSpec:
    """A table of distances for all layers; of positions and token types only where the file wants them."""
    sizes, (kinds, relative) = sizes_of(config), kinds_of(config)
    hidden, norm, dropout = sizes.hidden, LayerNorm(sizes.hidden), config.float("hidden_dropout_prob", default=0.1)
    positions, rows, normed = config.int("max_position_embeddings", default=512), table_rows(config) if relative else 0, has_norm(config)
    mlp = MLP(
        up=Linear("intermediate.dense", hidden, sizes.intermediate, bias=True, split="column"),
        down=Linear("output.dense", sizes.intermediate, hidden, bias=True, split="row"),
        activation=config.str("hidden_act", default="gelu"),
    )
    layer = PostNormLayer(attention(config, sizes, kinds, rows=rows, dropout=dropout), norm, mlp, norm, dropout=dropout)
    distances = Distances(hidden, rows, norm if relative and normed else None, bucketed=config.int("position_buckets", default=-1, minimum=-1) > 0)
    whole = text.language_model(
        config,
        sizes,
        (Block("encoder/layer", layer, sizes.num_layers),),
        embedding=replace(table(config, sizes, dropout=dropout), style="deberta", others=(distances,)),
        norm=None,
        head=head(config, sizes),
        names=("embeddings/word_embeddings", "", "cls/predictions"),
        buffer_bytes=positions * ID_BYTES,
        attentions=("eager",),
    )
    return whole if normed or not relative else replace(whole, untraced=("a table of distances without a norm",))


def attention(config: Config, sizes: Sizes, kinds: tuple[str, ...], *, rows: int, dropout: float) -> DisentangledAttention:
    """Three projections, and two more for distances unless they use the tokens' own."""
    hidden, own = sizes.hidden, rows and not config.bool("share_att_key", default=False)
    q, k, v, of_key, of_query = (Linear(name, hidden, hidden, bias=True) for name in ("query_proj", "key_proj", "value_proj", "pos_key_proj", "pos_query_proj"))
    return DisentangledAttention(
        sizes.num_heads,
        sizes.head_dim,
        q,
        k,
        v,
        o=Linear("dense", hidden, hidden, bias=True),
        pos_key_proj=of_key if own and "c2p" in kinds else None,
        pos_query_proj=of_query if own and "p2c" in kinds else None,
        to_position="c2p" in kinds,
        from_position="p2c" in kinds,
        rows=rows if kinds else 0,
        dropout=config.float("attention_probs_dropout_prob", default=0.1),
        table_dropout=dropout,
    )
