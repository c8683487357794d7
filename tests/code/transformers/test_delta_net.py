"""Gated delta networks by hand: what a chunk saves, and how the loop over chunks is counted."""

from __future__ import annotations

from memcalc.components.delta_net import GatedDeltaNet, gated_delta_net
from memcalc.specs.model import Axis
from tests.code.transformers.recorded import BATCH, record

HIDDEN, KEYS, VALUES, K, V, CHUNK = Axis("hidden_size", 6), 2, 4, 3, 5, 64


def mixer(*, fused: bool = False, keys: int = KEYS) -> GatedDeltaNet:
    """A small one."""
    return gated_delta_net(HIDDEN, num_k_heads=keys, num_v_heads=VALUES, k_dim=K, v_dim=V, kernel=4, activation="silu", fused=fused)


def saved(chunks: int, **more: bool) -> int:
    """Bytes saved of so many full chunks."""
    return record(mixer(**more), HIDDEN.size, seq=chunks * CHUNK).saved_bytes


def test_each_further_chunk_adds_the_same_whether_it_is_run_or_counted() -> None:
    """From the second on; the first has no state before it."""
    two, three, five, six, forty = (saved(n) for n in (2, 3, 5, 6, 40))
    assert three - two == six - five
    assert forty - six == 34 * (six - five)


def test_a_chunk_saves_five_squares_for_each_head() -> None:
    """The decay between tokens, two products of keys and of queries with keys, and both of them decayed, in fp32."""
    squares = 5 * 4 * BATCH * VALUES * CHUNK * CHUNK
    per_chunk = saved(8) - saved(7)
    of_tokens = per_chunk - squares - 4 * BATCH * VALUES * (K * V + 1)  # the state before it, and its decay
    assert of_tokens % (BATCH * CHUNK) == 0
    assert 0 < of_tokens < squares


def test_one_projection_holds_what_four_do() -> None:
    """Qwen3-Next's two are as large as Qwen3.5's four."""
    assert mixer(fused=True).num_params == mixer().num_params
    assert {name for name, _ in mixer(fused=True).weights()} >= {"in_proj_qkvz/weight", "in_proj_ba/weight"}


def test_shared_key_heads_are_repeated_and_then_forgotten() -> None:
    """What is saved of queries and keys is of each value head, however many key heads there are; the projections are smaller."""
    shared, apart = (record(mixer(keys=n), HIDDEN.size, seq=4 * CHUNK) for n in (KEYS, VALUES))
    channels = 2 * 2 * K  # queries and keys of two heads
    tokens = BATCH * 4 * CHUNK
    assert apart.saved_bytes - shared.saved_bytes == channels * 2 * (tokens + BATCH * (4 * CHUNK + 3))


def test_backward_leaves_gradients_alone() -> None:
    """All that was saved is gone."""
    left = record(mixer(), HIDDEN.size, seq=6 * CHUNK).left
    assert {path for path in left if not path.startswith("gradients/")} == {"gradient of x"}
