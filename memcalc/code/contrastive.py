"""What a contrastive loss is over."""

from __future__ import annotations

from typing import Any, NamedTuple


class Contrastive(NamedTuple):
    """A matrix of similarities.

    Attributes:
        examples: its rows: anchors of this rank.
        candidates: its columns: matches and hard negatives, of all ranks where they are gathered.
        texts: embedded on this rank, anchors among them.
        mini_batch: texts that have a graph at a time (GradCache); None: all.
        hidden: of an embedding.
    """

    examples: Any
    candidates: Any
    texts: Any
    mini_batch: int | None = None
    hidden: int = 0
