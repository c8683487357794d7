"""Putting a text model together, and the readings that several families share: partial rotary heads, windows by layer, dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memcalc.components import Attention, Embedding, Head, Linear, Rotary
from memcalc.models.config import Config
from memcalc.models.families._decoder import FULL, SLIDING, Sizes, rotary_buffer_bytes
from memcalc.specs.model import Axis, Block, Component, ModelSpec

EAGER_ONLY = ("eager",)
"""Models whose code scores queries and keys in steps of its own."""


def axes(*, hidden: int, intermediate: int, vocab: int, layers: int, heads: int, kv_heads: int | None = None, head_dim: int | None = None) -> Sizes:
    """`Sizes` from numbers; as many KV heads as heads, and heads that share the hidden size, unless said otherwise."""
    return Sizes(
        hidden=Axis("hidden_size", hidden),
        intermediate=Axis("intermediate_size", intermediate),
        vocab=Axis("vocab_size", vocab),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads or heads,
        head_dim=head_dim or hidden // heads,
    )


def whole_heads(config: Config, hidden: int, heads: int) -> int:
    """The width of a head where all heads share the hidden size.

    Raises:
        ModelError: they do not divide it.
    """
    if hidden % heads:
        raise config.error(f"the hidden size {hidden} is not a multiple of the {heads} attention heads")
    return hidden // heads


def plain_sizes(config: Config, *, kv_heads: int | None = None) -> Sizes:
    """The sizes of a model whose heads share the hidden size, under their usual names.

    Args:
        config: the file.
        kv_heads: as many as heads unless said otherwise.

    Raises:
        ModelError: the heads do not divide the hidden size.
    """
    hidden, heads = config.int("hidden_size"), config.int("num_attention_heads")
    return axes(
        hidden=hidden,
        intermediate=config.int("intermediate_size"),
        vocab=config.int("vocab_size"),
        layers=config.int("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=whole_heads(config, hidden, heads),
    )


def partial_rotary(config: Config, head_dim: int, *, default: float, key: str = "partial_rotary_factor") -> int:
    """How much of a head is turned: the share that the file gives at its top or with its other rotary parameters.

    Args:
        config: the file.
        head_dim: all of a head.
        default: the share of this family's models whose files say nothing.
        key: its older name at the top of the file.

    Raises:
        ModelError: it is not a share, or not one of whole pairs.
    """
    nested = config.get("rope_parameters") or config.get("rope_scaling") or {}
    share = nested.get("partial_rotary_factor") if isinstance(nested, dict) else None
    if share is None:
        share = config.float(key, "partial_rotary_factor", default=default)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise config.error(f"partial_rotary_factor is {share!r}; a share above 0 and at most 1 was expected")
    dim = int(head_dim * share)
    if dim % 2 or not dim:
        raise config.error(f"partial_rotary_factor {share} turns {dim} of the {head_dim} elements of a head, and rotary positions turn pairs")
    return dim


def layer_windows(config: Config, num_layers: int, *, pattern: int | None, window: int | None) -> tuple[int | None, ...]:
    """For each layer, how many keys a query sees: as ``layer_types`` says, or all in every so-manieth layer.

    Args:
        config: the file.
        num_layers: how many.
        pattern: the last of so many layers sees the whole sequence, where the file names no kinds; 0: none does; None: as transformers' class has it.
        window: what the others see.

    Raises:
        ModelError: ``layer_types`` is not one known kind for each layer.
    """
    default = tuple(FULL if pattern and (i + 1) % pattern == 0 else SLIDING for i in range(num_layers))
    asked: dict[str, Any] = {} if pattern is None else {"default": default}
    return tuple(window if kind == SLIDING else None for kind in config.kinds("layer_types", known=(FULL, SLIDING), count=num_layers, **asked))


def fused_attention(sizes: Sizes, name: str, out: str, **more: object) -> Attention:
    """Attention with one projection for queries, keys and values.

    Args:
        sizes: of the model.
        name, out: the modules' names.
        more: further fields; ``bias`` and ``o_bias`` for the projections.
    """
    bias, o_bias = bool(more.pop("bias", False)), bool(more.pop("o_bias", False))
    together = Axis("(num_attention_heads + 2 * num_key_value_heads) * head_dim", sizes.queries.size + 2 * sizes.keys.size)
    return Attention(
        sizes.num_heads,
        sizes.num_kv_heads,
        sizes.head_dim,
        q=Linear(name, sizes.hidden, together, bias, "column"),
        k=None,
        v=None,
        o=Linear(out, sizes.queries, sizes.hidden, o_bias, "row"),
        **more,  # type: ignore[arg-type]
    )


def language_model(
    config: Config,
    sizes: Sizes,
    layers: tuple[Block, ...],
    *,
    embedding: Embedding,
    norm: Component | None,
    head: Component | None = None,
    after: Sequence[Block] = (),
    names: tuple[str, str, str] = ("embed_tokens", "norm", "lm_head"),
    buffer_bytes: int | None = None,
    attentions: tuple[str, ...] = ("eager", "sdpa", "flash_attention_2"),
    max_positions: tuple[str, ...] = ("max_position_embeddings",),
) -> ModelSpec:
    """The whole model: table, layers, final norm where there is one, head.

    Args:
        config: the file.
        sizes: of the model.
        layers: between the ends.
        embedding, norm, head: the ends; by default a head without bias that is tied as the embedding says.
        after: blocks between the final norm and the head.
        names: where embedding, norm and head stand in the model's code.
        buffer_bytes: what stands on the card beside the parameters; by default the frequencies of the embedding's rotary positions.
        attentions: the implementations that the model's code has.
        max_positions: the key of the longest sequence, where no table of positions says it.
    """
    head = head or Head(Linear(names[2], sizes.hidden, sizes.vocab, split="column"), tied=embedding.tied)
    last = () if norm is None else (Block(names[1], norm, role="norm"),)
    rotaries = (embedding.rotary, embedding.local_rotary)
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=(Block(names[0], embedding, role="embedding"), *layers, *last, *after, Block(names[2], head, role="head")),
        hidden_size=sizes.hidden.size,
        vocab_size=sizes.vocab.size,
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        max_position_embeddings=embedding.positions - embedding.reserved_positions or config.optional_int(*max_positions, default=None),
        tied=embedding.tied,
        buffer_bytes=sum(rotary_buffer_bytes(r) for r in rotaries if isinstance(r, Rotary)) if buffer_bytes is None else buffer_bytes,
        attentions=attentions,
    )
