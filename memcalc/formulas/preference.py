"""What trainers of preferences and rewards look up beside the loss, and what a rollout leaves to learn from."""

from __future__ import annotations

from typing import Any

ENTROPY_CHUNK = 128
"""Tokens whose entropy is found at once (trl/trainer/utils.py, ``entropy_from_logits``)."""


def entropy_bytes(sequences: Any, *, seq_len: Any, vocab: int, width: int, copied: bool) -> Any:
    """The most that finding entropies of all tokens but each last one takes beside their logits: log-softmax, its exponents and the products of some.

    Source: TRL 1.10, trainer/utils.py, ``entropy_from_logits``; logits that are a slice are copied whole before (``reshape``).

    Args:
        sequences: in the batch.
        seq_len: tokens of each.
        vocab: vocab_size.
        width: bytes of a logit.
        copied: the logits are a slice of longer ones.

    >>> entropy_bytes(4, seq_len=33, vocab=5000, width=2, copied=True)
    5120000
    """
    tokens = sequences * (seq_len - 1)
    rows = tokens * (tokens <= ENTROPY_CHUNK) + ENTROPY_CHUNK * (tokens > ENTROPY_CHUNK)
    return (tokens * copied + 3 * rows) * vocab * width
