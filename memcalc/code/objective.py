"""What is asked of a model's head in the place of a loss on labels."""

from __future__ import annotations

from typing import Any, NamedTuple


class Objective(NamedTuple):
    """One question.

    Attributes:
        name: which program answers it (`memcalc.code.transformers.objectives`, `memcalc.code.megatron.log_probs`).
        answer: tokens at the end of each sequence that it is about; None: all but the first.
        entropy: how entropies of those tokens are found beside it: none, chunked (some at a time, without a graph), whole (of all logits, with one).
        chunk: tokens of each sequence that are looked at at a time; None: all.
    """

    name: str
    answer: Any = None
    entropy: str = "none"
    chunk: Any = None
