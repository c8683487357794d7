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


def similarity_bytes(rows: Any, candidates: Any, *, copies: int) -> Any:
    """Similarities of texts with candidates in fp32: of in-batch negatives, a matrix that grows with the square of the batch.

    Source: sentence_transformers/losses/MultipleNegativesRankingLoss.py; scores, their log-softmax and a gradient of each are four copies.

    Args:
        rows: anchors.
        candidates: matches and negatives.
        copies: that are there at once.

    >>> similarity_bytes(65536, 65536, copies=1) / 2**30
    16.0
    """
    return copies * rows * candidates * 4


def cached_bytes(texts: Any, *, hidden: int) -> Any:
    """Embeddings in fp32 that wait for their gradients, and those (GradCache, Gao et al. 2021).

    Source: sentence_transformers/losses/CachedMultipleNegativesRankingLoss.py, ``calculate_loss_and_cache_gradients``.

    Args:
        texts: in the batch.
        hidden: hidden_size.

    >>> cached_bytes(65536, hidden=768)
    402653184
    """
    return 2 * texts * hidden * 4


def liger_chunk(tokens: Any, *, hidden: int, vocab: int, budget: int = 1) -> Any:
    """Tokens whose logits Liger's fused linear cross-entropy makes at once: about `budget` times as many bytes of logits as of hidden states.

    Source: liger_kernel/ops/fused_linear_cross_entropy.py, ``fused_linear_cross_entropy_forward`` (``chunk_size``).

    Args:
        tokens: in the batch.
        hidden: hidden_size.
        vocab: vocab_size.
        budget: ``chunk_mem_const``.

    >>> liger_chunk(4 * 4096, hidden=4096, vocab=32000)
    2048
    >>> liger_chunk(100, hidden=4096, vocab=32000)
    16
    """
    chunk = next_power_of_2(ceil_div(tokens, ceil_div(vocab, budget * hidden)))
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
