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
    {"sharding": {"engine": "fsdp1"}, "hardware": {"gpus": 2}, "lora": {"r": 8}, "recompute": "full", "use_reentrant": True},
    {"sharding": {"engine": "fsdp2"}, "hardware": {"gpus": 2}},
    {"sharding": {"engine": "deepspeed", "zero": 3}, "hardware": {"gpus": 2}},
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


@pytest.mark.parametrize("engine", ["fsdp1", "fsdp2"])
def test_what_is_gathered_and_reduced_has_room_of_its_own(engine: str) -> None:
    """Segments of one stream do not serve another: more is reserved than if all tensors were the computation's."""
    run = Run.model_validate({"model": "qwen2.5-0.5b", "seq_len": 1024, "recompute": "full", "sharding": {"engine": engine}, "hardware": {"gpus": 4}})
    walked = walk_rank(resolve(run))
    apart = play(walked.plan, walked.strategy, accumulated=False)
    own = {stream: sum(size for pool in pools for size, _ in pool.free) for stream, pools in apart._pools.items()}
    gathers = {"fsdp1": "unshard", "fsdp2": "all-gather"}[engine]
    layer = 2 * max(part.num_params for part in walked.plan.parts if part.block.role == "layer")
    assert own[gathers] >= layer
    assert apart.peak_reserved_bytes > apart.peak_allocated_bytes


def test_states_come_before_what_their_first_step_needs() -> None:
    """torch's optimizers make all moments first, in what the activations left; square roots of all weights then need room of their own."""
    run = Run.model_validate({"model": "qwen2.5-0.5b", "micro_batch": 2, "seq_len": 4096, "recompute": "full"})
    found = estimate(run).ranks[0]
    moments, roots = (sum(t.bytes for t in found.instants[-1].terms if t.path == f"optimizer/{name}") for name in ("moments", "square roots"))
    assert found.reserved_bytes - found.allocated_bytes > 0.9 * min(moments, roots)
