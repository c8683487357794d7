"""A loss that makes gradients of logits in place, by hand."""

from __future__ import annotations

from tests.code.transformers.test_loss import head_alone


def test_logits_and_their_shifted_copy_are_all_that_is_held_in_fp32() -> None:
    """Forward peaks with both; backward keeps the copy as its gradient and writes it into zeros of all tokens."""
    batch, seq, hidden, vocab = 2, 513, 96, 2000
    peak, kept, backward, _ = head_alone("in_place", (batch, seq, hidden, vocab), frozen=True)
    logits, shifted, row = batch * seq * vocab * 4, batch * (seq - 1) * vocab * 4, batch * (seq - 1)
    assert peak == logits + shifted + row * (8 + 4 + 4) + 4
    assert kept == logits + shifted + row * (8 + 4) + 4  # the caller's logits go when forward is over
    assert backward <= peak + logits
