"""Sweeps: arrays give what single runs give, and what cannot be says why."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from memcalc.engine.estimate import estimate, walk_ranks
from memcalc.engine.resolve import resolve
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.sweep import sweep

NUM_RANDOM_RUNS = 500


def run_of(model: str, **fixed: Any) -> Any:
    """A maker of runs of one model."""
    return lambda values: Run.model_validate({"model": model, **fixed, **values})


@pytest.mark.parametrize(
    ("model", "fixed"),
    [
        ("llama-3.1-8b", {}),
        ("llama-3.1-8b", {"recompute": "full", "attention": "eager"}),
        ("llama-3.1-8b", {"dtype": "float32", "autocast": "bfloat16"}),
        ("mistral-7b", {}),
        ("llama-7b", {"sharding": {"tp": 2}}),
    ],
)
def test_arrays_equal_single_runs(model: str, fixed: dict[str, Any]) -> None:
    """Bit for bit, on random sizes of the batch."""
    rng = random.Random(f"{model}{fixed}")
    batches, lengths = [rng.randint(1, 16) for _ in range(10)], [rng.randint(1, 20_000) for _ in range(10)]
    make = run_of(model, **fixed)
    for points in sweep(make, {"micro_batch": batches, "seq_len": lengths}):
        assert len(points) == NUM_RANDOM_RUNS // 5
        for i in range(len(points)):
            alone = estimate(make({"micro_batch": int(points.micro_batch[i]), "seq_len": int(points.seq_len[i])}))
            assert int(points.peak_bytes[i]) == alone.peak.allocated_bytes
            assert points.instants[points.instant[i]] == alone.peak.name


def test_a_combination_that_cannot_be_gives_its_reason() -> None:
    """An impossible degree is a row with a reason, not the end of the sweep."""
    found = list(sweep(lambda v: Run.model_validate({"model": "llama-7b", "seq_len": 128, "sharding": v}), {"tp": [1, 3, 4]}))
    assert [p.reason is None for p in found] == [True, False, True]
    assert "32 attention heads" in str(found[1].reason)
    assert (found[1].peak_bytes == -1).all()


def test_all_combinations_are_there_in_order() -> None:
    """The last axis varies fastest."""
    (points,) = sweep(run_of("llama-7b"), {"micro_batch": [1, 2], "seq_len": [64, 128, 256]})
    assert points.micro_batch.tolist() == [1, 1, 1, 2, 2, 2]
    assert points.seq_len.tolist() == [64, 128, 256] * 2
    assert (np.diff(points.peak_bytes[:3]) >= 0).all()


@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("llama-3.1-8b", {"engine": "fsdp2", "gpus": 8}),
        ("llama-3.1-8b", {"engine": "fsdp1", "gpus": 8}),
        ("llama-3.1-8b", {"zero": 2, "gpus": 8}),
        ("llama-3.1-8b", {"zero": 3, "gpus": 8, "grad_accum": 2}),
        ("llama-3.1-8b", {"pp": 4, "gpus": 4}),
        ("llama-3.1-8b", {"code": "megatron", "tp": 2, "pp": 4, "sp": True, "zero": 1, "gpus": 16}),
        ("llama-3.1-8b", {"code": "megatron", "cp": 2, "gpus": 4, "recompute": "full", "recompute_method": "block", "recompute_num_layers": 4}),
        ("llama-3.1-8b", {"lora_r": 16, "recompute": "full"}),
        ("llama-3.1-8b", {"task": "inference"}),
        ("mixtral-8x7b", {"zero": 3, "gpus": 8}),
        ("mixtral-8x7b", {"code": "megatron", "ep": 4, "gpus": 8, "zero": 1}),
        ("qwen3-30b-a3b", {"engine": "fsdp2", "gpus": 8}),
        ("gemma-2-9b", {"attention": "eager"}),
    ],
)
def test_arrays_equal_single_runs_of_every_engine(model: str, keys: dict[str, Any]) -> None:
    """Bit for bit; lengths are multiples of four, for the engines that cut them."""
    rng = random.Random(f"{model}{keys}")
    batches, lengths = [rng.randint(1, 16) for _ in range(5)], [4 * rng.randint(1, 10_000) for _ in range(8)]
    (points,) = sweep(lambda values: read_run(model, **keys, **values), {"micro_batch": batches, "seq_len": lengths})
    assert points.reason is None
    for i in range(len(points)):
        walked = walk_ranks(resolve(read_run(model, **keys, micro_batch=int(points.micro_batch[i]), seq_len=int(points.seq_len[i]))), detailed=False)
        assert int(points.peak_bytes[i]) == max(int(shot.total) for one in walked for shot in one.walk.instants.values())


@pytest.mark.parametrize(
    ("model", "keys", "lengths", "able"),
    [
        ("llama-3.2-1b", {"code": "megatron", "cp": 2, "gpus": 4}, [1001, 1024, 3074, 4096], [1024, 4096]),
        ("llama-3.2-1b", {"code": "torchtitan", "tp": 4, "gpus": 8}, [1022, 4096], [4096]),
        ("qwen2.5-vl-7b", {"images": 2, "image_size": 1120}, [512, 4096], [4096]),
        ("vit-base", {"task": "inference"}, [128, 197], [197]),
    ],
)
def test_a_length_that_cannot_be_is_refused_by_itself(model: str, keys: dict[str, Any], lengths: list[int], able: list[int]) -> None:
    points = list(sweep(lambda values: read_run(model, **keys, **values), {"seq_len": lengths}))
    assert [some.seq_len.tolist() for some in points if some.reason is None] == [able]
    assert sorted(n for some in points if some.reason is not None for n in some.seq_len.tolist()) == sorted({*lengths} - {*able})


def test_sizes_beyond_64_bits_are_counted_without_wrapping_round() -> None:
    huge, large = 2**40, 2**36
    rows = {}
    for points in sweep(lambda values: read_run("llama-7b", **values), {"micro_batch": [1, huge], "seq_len": [512, large, huge]}):
        for i in range(len(points)):
            rows[int(points.micro_batch[i]), int(points.seq_len[i])] = (points.reason, int(points.peak_bytes[i]))
    assert rows[1, large] == (None, estimate(read_run("llama-7b", seq_len=large)).peak.allocated_bytes)
    assert rows[1, 512][1] < rows[1, large][1]
    assert "2^62" in str(rows[huge, huge][0])
