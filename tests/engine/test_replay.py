"""Steps played through the allocator."""

from __future__ import annotations

import pytest

from memcalc.engine.estimate import estimate, walk_rank
from memcalc.engine.replay import play
from memcalc.engine.resolve import resolve
from memcalc.specs.run import Run
from memcalc.units import GiB

RUNS = [
    {"recompute": "none"},
    {"recompute": "full"},
    {"attention": "eager", "seq_len": 512},
    {"dtype": "float32", "autocast": "bfloat16"},
    {"optimizer": "sgd"},
    {"lora": {"r": 8}},
    {"task": "inference"},
]


@pytest.mark.parametrize("keys", RUNS, ids=str)
def test_what_is_placed_is_what_is_counted(keys: dict[str, object]) -> None:
    """The most bytes asked of the allocator are the peak of the estimate: the same events, one by one instead of summed."""
    run = Run.model_validate({"model": "qwen2.5-0.5b", "micro_batch": 1, "seq_len": 1024, **keys})
    job = resolve(run)
    walked = walk_rank(job)
    allocator = play(walked.plan, walked.strategy, accumulated=False, training=run.task != "inference")
    assert allocator.peak_requested_bytes == pytest.approx(estimate(run).peak.allocated_bytes, rel=1e-3)
    assert allocator.peak_requested_bytes <= allocator.peak_allocated_bytes <= allocator.peak_reserved_bytes


def test_a_smaller_card_makes_the_allocator_give_back_what_it_does_not_use() -> None:
    """Between what is allocated and what would be reserved without end, it fits with releases; below it does not."""
    free = estimate(Run.model_validate({"model": "qwen2.5-0.5b", "micro_batch": 2, "seq_len": 2048, "hardware": {"gpu": "80GiB"}}))
    between = (free.most_loaded.allocated_bytes + free.most_loaded.reserved_bytes) / 2 / GiB
    tight = estimate(Run.model_validate({"model": "qwen2.5-0.5b", "micro_batch": 2, "seq_len": 2048, "hardware": {"gpu": f"{between + 0.6:.2f}GiB"}}))
    small = estimate(Run.model_validate({"model": "qwen2.5-0.5b", "micro_batch": 2, "seq_len": 2048, "hardware": {"gpu": "8GiB"}}))
    assert free.most_loaded.reservation.num_releases == 0
    assert tight.most_loaded.reservation.num_releases > 0
    assert small.most_loaded.reservation.wanted_bytes > 0
    assert [a.verdict.fits for a in (free, small) if a.verdict] == [True, False]
