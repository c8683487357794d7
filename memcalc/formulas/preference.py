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


def halves_bytes(sequences: Any, *, seq_len: Any, vocab: int, width: int) -> Any:
    """The most that the mean logits of wanted and unwanted answers take: a copy of each half of the batch, and one more of the wanted one's tokens.

    Source: TRL 1.10, trainer/kto_trainer.py, ``KTOTrainer._compute_loss`` (``chosen_logits``); half of a batch is taken to be wanted.

    Args:
        sequences: in the batch.
        seq_len: tokens of each.
        vocab: vocab_size.
        width: bytes of a logit.

    >>> halves_bytes(4, seq_len=129, vocab=5000, width=2)
    7680000
    """
    return 3 * (sequences * (seq_len - 1)) // 2 * vocab * width


def experience_bytes(sequences: Any, *, seq_len: Any, answer: Any, has_reference: bool, has_critic: bool) -> dict[str, Any]:
    """What a rollout leaves to learn from, by name: token ids and masks in 64 bits, one fp32 number a token of the answer for all else.

    Source: verl 0.6, trainer/ppo/ray_trainer.py and core_algos.py (``old_log_probs``, ``ref_log_prob``, ``values``, ``token_level_rewards``,
    ``advantages``, ``returns``); TRL 1.10, experimental/ppo/ppo_trainer.py, ``PPOTrainer.train``, keeps the same.

    Args:
        sequences: answers on one card.
        seq_len: tokens of prompt and answer.
        answer: tokens of the answer.
        has_reference: there is a reference, whose log-probabilities are kept.
        has_critic: there is a critic, whose values are kept, and returns.

    >>> sum(experience_bytes(128, seq_len=512, answer=256, has_reference=True, has_critic=True).values())
    2097152
    """
    whole, each = sequences * seq_len, sequences * answer
    found = {"tokens": 8 * whole, "masks": 8 * (whole + each), "log-probabilities": 4 * each, "rewards": 4 * each, "advantages": 4 * each}
    if has_reference:
        found["reference's log-probabilities"] = 4 * each
    if has_critic:
        found |= {"values": 4 * each, "returns": 4 * each}
    return found
