"""Mamba-2's mixer by hand: what its chunks save."""

from __future__ import annotations

from itertools import pairwise

from memcalc.components.mamba2 import Mamba2, mamba2
from memcalc.specs.model import Axis
from tests.code.transformers.recorded import BATCH, record

HIDDEN, HEADS, DIM, STATE = Axis("hidden_size", 6), 4, 3, 5


def mixer(chunk: int = 8, groups: int = 1) -> Mamba2:
    """A small one."""
    sizes = {"num_heads": HEADS, "head_dim": DIM, "num_groups": groups, "state": STATE, "chunk": chunk, "kernel": 4}
    return mamba2(HIDDEN, **sizes, bias=False, conv_bias=True, activation="silu")


def test_three_squares_of_each_chunk_and_head_are_saved() -> None:
    """Decay, scores and their product, in fp32; a chunk twice as long has twice as many of them for each token."""
    seq = 64
    per_square = 4 * BATCH * HEADS * seq
    states = 4 * BATCH * HEADS * DIM * STATE
    narrow, wide = (record(mixer(chunk), HIDDEN.size, seq=seq).saved_bytes for chunk in (8, 16))
    masks = 2 * (16 * 16 - 8 * 8)
    across = 4 * BATCH * HEADS * (5 * 5 - 9 * 9) + 2 * (5 * 5 - 9 * 9)
    assert wide - narrow == 3 * per_square * 8 + masks + across - 2 * 4 * states


def test_each_further_chunk_adds_the_same_but_for_their_decays() -> None:
    """The states at the ends of chunks are a product of a square of chunks, whose size grows with the second power."""
    saved = [record(mixer(), HIDDEN.size, seq=8 * n).saved_bytes for n in (4, 5, 6, 7)]
    grown = [b - a for a, b in pairwise(saved)]
    squares = 2 * (4 * BATCH * HEADS + 2)  # (n + 1)² numbers and two masks: its second difference
    assert [b - a for a, b in pairwise(grown)] == [squares, squares]


def test_a_last_chunk_that_is_not_full_is_padded() -> None:
    """What works in chunks takes as much for 17 tokens as for 24."""
    short, full = (record(mixer(), HIDDEN.size, seq=n).saved_bytes for n in (17, 24))
    assert 0 < full - short < (full - record(mixer(), HIDDEN.size, seq=16).saved_bytes) / 2


def test_groups_share_b_and_c_in_the_projections_alone() -> None:
    """Each head has its own copies afterwards; the norm of the output has statistics of each group."""
    assert mixer(groups=2).num_params - mixer().num_params == 2 * STATE * (HIDDEN.size + 4 + 1)
    one, two = (record(mixer(groups=n), HIDDEN.size, seq=32).saved_bytes for n in (1, 2))
    projected = BATCH * 32 * 2 * STATE * 2
    statistics = BATCH * 32 * 4
    assert two - one == projected + BATCH * 2 * STATE * (32 + 3) * 2 + statistics
