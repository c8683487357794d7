"""Sequences that differ in length from step to step."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.lengths import NUM_LENGTHS, lengths_of
from memcalc.errors import InputError
from memcalc.specs.run import LengthsSpec, Run

RUN = {"model": "qwen2.5-0.5b", "seq_len": 2048, "recompute": "full"}


def test_lengths_lie_between_the_shortest_and_the_longest() -> None:
    """Evenly where nothing is known of their spread: the middle first, then the quarters, then the eighths."""
    found = lengths_of(LengthsSpec(min=100), 900, 1)
    assert found == (500, 300, 700, 200, 600, 400, 800)
    assert len(found) == NUM_LENGTHS - 1


def test_a_log_normal_spread_is_cut_at_both_ends() -> None:
    """Of samples of 3234 tokens on average, those below 2048 lie closer to 2048 than to 91."""
    found = lengths_of(LengthsSpec(min=91, mean=3234.4, std=2547.5), 2048, 1)
    assert all(91 <= length <= 2048 for length in found)
    assert found[0] > (91 + 2048) / 2


def test_the_longest_of_several_is_longer() -> None:
    """A micro-batch of eight is as long as its longest."""
    assert all(a < b for a, b in zip(lengths_of(LengthsSpec(), 900, 1), lengths_of(LengthsSpec(), 900, 8), strict=True))


def test_no_length_is_below_the_shortest() -> None:
    """All sequences would be left out."""
    with pytest.raises(InputError, match=r"lengths\.min"):
        lengths_of(LengthsSpec(min=3000), 2048, 1)


def test_what_is_reserved_grows_and_what_is_allocated_does_not() -> None:
    """The longest step is the same; segments of the shorter ones stay, unless the card is too small for them."""
    plain, varied = (estimate(Run.model_validate({**RUN, **keys})).ranks[0] for keys in ({}, {"lengths": {"min": 64}}))
    assert varied.allocated_bytes == plain.allocated_bytes
    assert varied.reserved_bytes > 1.2 * plain.reserved_bytes
    small = estimate(Run.model_validate({**RUN, "lengths": {"min": 64}, "hardware": {"gpu": f"{plain.device_bytes / 2**30 + 0.1:.2f}GiB"}}))
    assert small.verdict is not None
    assert small.verdict.fits
    assert small.ranks[0].reservation.num_releases > 0


def test_segments_that_grow_in_place_keep_less_of_lengths_that_vary() -> None:
    """expandable_segments: one segment for each pool, of which no piece is too small for good."""
    run = RUN | {"lengths": {"min": 64}}
    fixed, growing = (estimate(Run.model_validate(run | {"expandable_segments": on})).ranks[0] for on in (False, True))
    assert growing.reserved_bytes < 0.9 * fixed.reserved_bytes
    assert growing.reserved_bytes >= growing.allocated_bytes


@pytest.mark.parametrize("keys", [{"task": "inference"}, {"hardware": {"gpus": 2}, "sharding": {"pp": 2}}], ids=str)
def test_where_lengths_are_not_played_the_answer_says_so(keys: dict[str, Any]) -> None:
    """Listed with what was read and not used."""
    found = estimate(Run.model_validate({"model": "qwen2.5-0.5b", "seq_len": 512, "lengths": {"min": 64}, **keys}))
    assert any(line.startswith("lengths: ") for line in found.ignored)
