"""Logits, and how losses that never hold all of them cut tokens into chunks."""

from __future__ import annotations

from typing import Any

from memcalc.units import ceil_div

MOST_DOUBLINGS = 48
"""No batch has more than 2^48 tokens."""


def logits_bytes(sequences: Any, *, seq_len: Any, vocab: int, width: int) -> Any:
    """Logits of all tokens of some sequences.

    Source: transformers, ``CausalLMOutput.logits``; huggingface/transformers issue 25313 has 103 MB for a sample of Pythia in fp32.

    Args:
        sequences: how many.
        seq_len: tokens of each.
        vocab: vocab_size.
        width: bytes of a logit.

    >>> logits_bytes(1, seq_len=512, vocab=50432, width=4)
    103284736
    """
    return sequences * seq_len * vocab * width


def liger_chunk(tokens: Any, *, hidden: int, vocab: int) -> Any:
    """Tokens whose logits Liger's fused linear cross-entropy makes at once: about as many bytes of logits as of hidden states.

    Source: liger_kernel/ops/fused_linear_cross_entropy.py, ``fused_linear_cross_entropy_forward`` (``chunk_size``).

    Args:
        tokens: in the batch.
        hidden: hidden_size.
        vocab: vocab_size.

    >>> liger_chunk(4 * 4096, hidden=4096, vocab=32000)
    2048
    >>> liger_chunk(100, hidden=4096, vocab=32000)
    16
    """
    chunk = next_power_of_2(ceil_div(tokens, ceil_div(vocab, hidden)))
    return chunk * (chunk <= tokens) + tokens * (chunk > tokens)


def next_power_of_2(num: Any) -> Any:
    """The least power of two that is not below a number.

    Source: triton.next_power_of_2.

    >>> next_power_of_2(1000)
    1024
    """
    power: Any = 1
    for _ in range(MOST_DOUBLINGS):
        power = power + power * (power < num)
    return power
