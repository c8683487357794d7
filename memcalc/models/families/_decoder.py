"""What decoder-only language models share: their sizes, rotary attention, a gated network, the two ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TypeVar

from memcalc.components import Attention, Embedding, GatedMLP, Head, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.dataclass import dataclass
from memcalc.models.config import Config
from memcalc.specs.model import Axis, Block, Component, ModelSpec

Kind = TypeVar("Kind")

FULL, SLIDING = "full_attention", "sliding_attention"
"""Kinds of layers that see the whole sequence, or a window of it (``layer_types``)."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder, under Hugging Face's names.

    Attributes:
        hidden, intermediate, vocab: axes of its weights.
        num_layers, num_heads, num_kv_heads, head_dim: counts.
    """

    hidden: Axis
    intermediate: Axis
    vocab: Axis
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def queries(self) -> Axis:
        """All heads' queries side by side."""
        return Axis("num_attention_heads * head_dim", self.num_heads * self.head_dim)

    @property
    def keys(self) -> Axis:
        """All heads' keys side by side; values likewise."""
        return Axis("num_key_value_heads * head_dim", self.num_kv_heads * self.head_dim)


def read_sizes(config: Config, *, head_dim_follows: bool = True, intermediate: int | None = None) -> Sizes:
    """The sizes that most decoders' files hold.

    Args:
        config: the file.
        head_dim_follows: without ``head_dim`` a head is hidden size over heads wide, as the model's code has it; otherwise its
            class has a number of its own.
        intermediate: the width of the networks, where it is not simply ``intermediate_size``.

    Raises:
        ModelError: a size is missing or impossible, or the heads do not go together.
    """
    hidden, heads, kv_heads = config.int("hidden_size"), config.int("num_attention_heads"), config.int("num_key_value_heads")
    if heads % kv_heads:
        raise config.error(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if head_dim_follows and not config.has("head_dim") and hidden % heads:
        raise config.error(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and there is no head_dim")
    dim = config.int("head_dim", default=hidden // heads) if head_dim_follows else config.int("head_dim")
    if dim % 2:
        raise config.error(f"head_dim {dim} is odd, and rotary positions turn pairs")
    return Sizes(
        hidden=Axis("hidden_size", hidden),
        intermediate=Axis("intermediate_size", config.int("intermediate_size") if intermediate is None else intermediate),
        vocab=Axis("vocab_size", config.int("vocab_size")),
        num_layers=config.int("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
    )


def attention(
    sizes: Sizes,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    q_norm: RMSNorm | LayerNorm | None = None,
    k_norm: RMSNorm | LayerNorm | None = None,
    rotary: Rotary | None = None,
    window: int | None = None,
) -> Attention:
    """Grouped-query attention with four projections, cut by heads; the whole head turns unless `rotary` says otherwise."""
    return Attention(
        sizes.num_heads,
        sizes.num_kv_heads,
        sizes.head_dim,
        q=Linear("q_proj", sizes.hidden, sizes.queries, qkv_bias, "column"),
        k=Linear("k_proj", sizes.hidden, sizes.keys, qkv_bias, "column"),
        v=Linear("v_proj", sizes.hidden, sizes.keys, qkv_bias, "column"),
        o=Linear("o_proj", sizes.queries, sizes.hidden, o_bias, "row"),
        q_norm=q_norm,
        k_norm=k_norm,
        rotary=rotary or Rotary(sizes.head_dim),
        window=window,
    )


def gated_mlp(sizes: Sizes, activation: str, *, bias: bool = False) -> GatedMLP:
    """A gated network of three projections."""
    return GatedMLP(
        gate=Linear("gate_proj", sizes.hidden, sizes.intermediate, bias, "column"),
        up=Linear("up_proj", sizes.hidden, sizes.intermediate, bias, "column"),
        down=Linear("down_proj", sizes.intermediate, sizes.hidden, bias, "row"),
        activation=activation,
    )


def layer_blocks(kinds: Iterable[Kind], make: Callable[[Kind], Component], path: str = "layers") -> tuple[Block, ...]:
    """Layers in order, equal neighbours as one block.

    Args:
        kinds: what kind each layer is of.
        make: the layer of a kind.
        path: where the layers stand in the model.
    """
    return tuple(Block(path, make(kind), len(list(group))) for kind, group in groupby(kinds))


def windows(config: Config, num_layers: int) -> tuple[int | None, ...]:
    """For each layer, how many keys a query sees (None: all), as ``layer_types`` says where sliding windows are in use.

    Raises:
        ModelError: ``layer_types`` is not one known kind for each layer.
    """
    window = config.optional_int("sliding_window") if config.bool("use_sliding_window") else None
    if window is None:
        return (None,) * num_layers
    return tuple(window if kind == SLIDING else None for kind in config.kinds("layer_types", known=(FULL, SLIDING), count=num_layers))


def causal_lm(config: Config, sizes: Sizes, layers: tuple[Block, ...], *, norm: RMSNorm | LayerNorm, rotary: Rotary | None = None) -> ModelSpec:
    """The whole model: table, layers, final norm, head.

    Args:
        config: the file; says whether the head uses the table.
        sizes: of the model.
        layers: between the ends.
        norm: the final one.
        rotary: what the shared angles are for; by default the whole head.
    """
    tied = config.bool("tie_word_embeddings")
    rotary = rotary or Rotary(sizes.head_dim)
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=(
            Block("embed_tokens", Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied), role="embedding"),
            *layers,
            Block("norm", norm, role="norm"),
            Block("lm_head", Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied), role="head"),
        ),
        hidden_size=sizes.hidden.size,
        vocab_size=sizes.vocab.size,
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        max_position_embeddings=config.optional_int("max_position_embeddings", default=None),
        tied=tied,
        buffer_bytes=rotary_buffer_bytes(rotary),
    )


def rotary_buffer_bytes(rotary: Rotary) -> int:
    """``inv_freq`` and ``original_inv_freq``, fp32, one for each pair (transformers, LlamaRotaryEmbedding.__init__).

    >>> rotary_buffer_bytes(Rotary(128))
    512
    """
    return 2 * (rotary.dim // 2) * 4
