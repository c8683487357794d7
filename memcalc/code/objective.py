"""What is asked of a model's head in the place of a loss on labels."""

from __future__ import annotations

from typing import Any, NamedTuple


class Objective(NamedTuple):
    """One question.

    Attributes:
        name: which program answers it (`memcalc.code.transformers.objectives`).
        answer: tokens at the end of each sequence that it is about; None: all but the first.
        entropy: how entropies of those tokens are found beside it: none, chunked (some at a time, without a graph), whole (of all logits, with one).
    """

    name: str
    answer: Any = None
    entropy: str = "none"
