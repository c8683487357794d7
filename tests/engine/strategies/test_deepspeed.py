"""DeepSpeed and DDP against traced steps of DeepSpeed and DistributedDataParallel themselves (0.19.8 and torch 2.13), and laws of the stages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memcalc.engine import step
from memcalc.engine.estimate import estimate, estimate_job, walk_rank
from memcalc.engine.resolve import resolve
from memcalc.engine.strategies import strategy_for
from memcalc.engine.walk import Walk
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from tests.traced import DATA, Case, errors

TOLERANCE = 2e-4
"""Relative. What is left are scalars, step counters and index vectors, which weigh in models of ten megabytes."""
CASES: list[dict[str, Any]] = json.loads((DATA / "traces_deepspeed.json").read_text())
BF16 = {"bf16": {"enabled": True}}


def case_of(data: dict[str, Any]) -> Case:
    return Case(**{key: value for key, value in data.items() if key not in ("initialize", "rank")})


def job_of(case: Case, folder: Path) -> Job:
    folder.joinpath("config.json").write_text(json.dumps(case.config))
    return resolve(Run.model_validate({"model": str(folder), **case.run}))


def totals(job: Job) -> dict[str, Any]:
    return {name: shot.total for name, shot in walk_rank(job, detailed=False).walk.instants.items()}


def allocated(model: str = "llama-7b", **keys: Any) -> dict[str, int]:
    found = estimate(read_run(model, **{"seq_len": 512, "dp": 8, **keys}))
    return {i.name: i.allocated_bytes for i in found.most_loaded.instants}


# ---------------------------------------------------------------------- traces
@pytest.mark.accuracy
@pytest.mark.parametrize("data", CASES, ids=lambda c: c["id"])
def test_every_instant_agrees_with_the_trace(data: dict[str, Any], tmp_path: Path) -> None:
    case = case_of(data)
    answer = estimate_job(replace(job_of(case, tmp_path), dp_rank=data.get("rank", 0)))
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


@pytest.mark.accuracy
@pytest.mark.parametrize("data", [c for c in CASES if "initialize" in c], ids=lambda c: c["id"])
def test_construction_agrees_with_the_trace(data: dict[str, Any], tmp_path: Path) -> None:
    """The most that is alive until the first step."""
    job = job_of(case_of(data), tmp_path)
    walk = Walk()
    step.initialize(walk, strategy_for(job)(job, walk_rank(job).plan))
    assert walk.instants["initialize"].total == pytest.approx(data["initialize"], rel=TOLERANCE)


# ---------------------------------------------------------------------- laws
@pytest.mark.parametrize("ranks", [2, 3, 64])
def test_a_higher_stage_never_holds_more_in_the_step(ranks: int) -> None:
    held = [allocated(zero=stage, engine="deepspeed", dp=ranks)["optimizer_step"] for stage in range(4)]
    assert held[0] > held[1] == held[2] > held[3]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_more_ranks_hold_less_each(stage: int) -> None:
    held = [allocated(zero=stage, dp=ranks)["start"] for ranks in (1, 2, 4, 8, 64)]
    assert held == sorted(held, reverse=True)


@pytest.mark.parametrize("stage", [2, 3])
def test_accumulation_adds_no_more_than_the_partitions_gradient(stage: int) -> None:
    one, more = allocated(zero=stage), allocated(zero=stage, grad_accum=8)
    assert more["start"] == one["start"]
    assert 0 <= more["forward_peak"] - one["forward_peak"] < 2 * 6_738_415_616 / 8 * 1.2


def test_the_shards_of_tensor_parallel_ranks_are_cut_further() -> None:
    """ZeRO beside tensor parallelism partitions what a tensor-parallel rank holds."""
    whole, halves = allocated(zero=3, dp=4), allocated(zero=3, dp=4, tp=2)
    buffers = 2 * 5 * 10**8
    assert (halves["start"] - buffers) / (whole["start"] - buffers) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    "keys",
    [
        {"zero": 0, "engine": "deepspeed"},
        {"zero": 1},
        {"zero": 2},
        {"zero": 2, "grad_accum": 2},
        {"zero": 3},
        {"zero": 3, "recompute": "full"},
        {"deepspeed": BF16 | {"zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}}},
        {"deepspeed": BF16 | {"zero_optimization": {"stage": 2, "reduce_bucket_size": 1e7, "round_robin_gradients": True}}},
        {"engine": "ddp", "gradient_as_bucket_view": True},
    ],
    ids=str,
)
def test_arrays_of_sizes_answer_as_single_sizes_do(keys: dict[str, Any]) -> None:
    job = resolve(read_run("llama-7b", dp=8, seq_len=2048, **keys))
    batch, seq, ranks = np.array([1, 2, 3]), np.array([512, 1024, 96]), np.array([1, 8, 7])
    many = totals(replace(job, micro_batch=batch, seq_len=seq, mesh=replace(job.mesh, dp=ranks)))
    for i in range(3):
        one = totals(replace(job, micro_batch=int(batch[i]), seq_len=int(seq[i]), mesh=replace(job.mesh, dp=int(ranks[i]))))
        assert {name: int(np.broadcast_to(n, 3)[i]) for name, n in many.items()} == one


# ---------------------------------------------------------------------- knobs
def test_deepspeeds_own_adam_needs_no_room_in_the_step() -> None:
    torch_adam = allocated(deepspeed=BF16 | {"zero_optimization": {"stage": 3}})
    own = allocated(deepspeed=BF16 | {"zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW"}})
    assert torch_adam["optimizer_step"] > own["optimizer_step"]


def test_a_smaller_sub_group_lowers_the_peak_of_the_step() -> None:
    steps = [allocated(deepspeed=BF16 | {"zero_optimization": {"stage": 3, "sub_group_size": size}})["optimizer_step"] for size in (1e9, 1e8, 1e7)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[2]


def test_mics_cuts_among_its_own_ranks_alone() -> None:
    mics = {"zero_optimization": {"stage": 3, "mics_shard_size": 4}}
    assert allocated(deepspeed=BF16 | mics, dp=64)["start"] == allocated(zero=3, dp=4)["start"]


def test_without_zero_init_every_rank_holds_the_whole_model_first() -> None:
    peaks = []
    for ranks in (4, 16):
        job = resolve(read_run("llama-2-13b", zero=3, dp=ranks, dtype="float16", zero3_init_flag=False, offload={"optimizer": "cpu", "params": "cpu"}))
        walk = Walk()
        step.initialize(walk, strategy_for(job)(job, walk_rank(job).plan))
        peaks.append(walk.instants["initialize"].total)
    assert peaks[0] == peaks[1] == pytest.approx(2 * 13_015_864_320, rel=1e-6)


# ---------------------------------------------------------------------- offload
OFFLOADED = {"optimizer": "cpu"}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_offloaded_optimizer_leaves_the_card(stage: int) -> None:
    here, there = allocated(zero=stage), allocated(zero=stage, offload=OFFLOADED)
    moved = 12 * 6_738_415_616 / 8
    if stage == 3:
        moved += 2 * 6_738_415_616 / 8  # the gradients' shards, too
        buffer = 0
    else:
        buffer = 2 * 32000 * 4096  # where one gradient waits
    assert here["start"] - there["start"] == pytest.approx(moved - buffer, rel=1e-4)


def test_offloaded_weights_are_on_the_card_only_around_their_uses() -> None:
    there = allocated(zero=3, offload={"optimizer": "cpu", "params": "cpu"}, recompute="full")
    assert there["start"] < 1.1 * 2 * 5 * 10**8  # the bucket and small parameters
    assert there["backward_peak"] < 8 * 2**30


def test_half_of_the_sub_groups_step_on_the_host() -> None:
    """Twin-Flow: the ratio is the share of sub-groups whose states are offloaded."""
    config: dict[str, Any] = BF16 | {"zero_optimization": {"stage": 3, "sub_group_size": 1e7, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}
    none, half = allocated(zero=3, offload=OFFLOADED), allocated(deepspeed=config)
    assert half["start"] - none["start"] == pytest.approx(16 * 6_738_415_616 / 8 / 2, rel=0.03)


def host(**keys: Any) -> dict[str, int]:
    found = estimate(read_run("llama-7b", **{"seq_len": 512, "dp": 8, **keys}))
    return {term.path: term.bytes for term in found.most_loaded.host}


def test_nothing_is_on_the_host_without_offload() -> None:
    assert host(zero=2) == host(zero=3) == {}


def test_the_host_of_stage_two_holds_master_weights_gradients_and_moments() -> None:
    part = 6_738_415_616 // 8
    terms = host(zero=2, offload=OFFLOADED)
    assert terms["host/pageable/optimizer/moments"] == 8 * part
    assert terms["host/pinned/master weights"] == terms["host/pinned/gradients"] == 2**32 >= 4 * part
    assert terms["host/pinned/weights on their way to the card"] == 2**31 >= 2 * part


def test_pinned_blocks_are_rounded_up_and_pageable_ones_are_not() -> None:
    config: dict[str, Any] = BF16 | {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}}
    terms = host(deepspeed=config)
    assert all(path.startswith("host/pageable/") for path in terms)
    assert terms["host/pageable/master weights"] == 4 * 6_738_415_616 // 8


def test_accumulation_keeps_whole_gradients_on_the_host() -> None:
    more = host(zero=2, offload=OFFLOADED, grad_accum=2)
    assert more.keys() - host(zero=2, offload=OFFLOADED).keys() == {"host/pinned/accumulated gradients"}


def test_the_host_of_nvme_holds_buffers_instead_of_states() -> None:
    terms = host(zero=3, offload={"optimizer": "nvme", "params": "nvme"})
    assert terms["host/pinned/buffers for weights"] == 5 * 10**8 * 2
    assert terms["host/pinned/buffers for optimizer states"] == 4 * (6_738_415_616 // 8) * 4
    assert "host/pageable/optimizer/moments" not in terms


# ---------------------------------------------------------------------- saving
@pytest.mark.parametrize(("stage", "gathers"), [(0, False), (1, False), (2, False), (3, False), (3, True)])
def test_saving_gathers_module_by_module_at_stage_3_and_only_if_told(stage: int, gathers: bool) -> None:
    """Elsewhere a state dict refers to what is there. Llama's largest module is its table, 32000 · 4096 values of 16 bits; small weights are cut before."""
    config = {**BF16, "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": gathers}}
    found = estimate(read_run("llama-7b", seq_len=512, dp=8, checkpoint_save="full", deepspeed=config))
    small = sum(t.bytes for t in found.instant("start").terms if t.path == "weights/kept whole")
    saved = found.instant("checkpoint_save").allocated_bytes
    assert saved - found.instant("start").allocated_bytes == (2 * 32000 * 4096 - small if gathers else 0)
    assert any("every rank saves its shards" in note for note in found.notes) == (stage == 3 and not gathers)


# ---------------------------------------------------------------------- ranks
@pytest.mark.parametrize(("stage", "accum"), [(1, 1), (2, 1), (2, 2)])
def test_the_heaviest_data_parallel_rank_is_found(stage: int, accum: int) -> None:
    """By walking through the steps of all of them."""
    job = resolve(read_run("llama-3.2-1b", seq_len=512, dp=8, grad_accum=accum, zero=stage, engine="deepspeed"))
    peaks = [walk_rank(replace(job, dp_rank=rank)).peak_bytes for rank in range(8)]
    answer = estimate_job(job)
    assert answer.most_loaded.allocated_bytes == peaks[0]
    assert answer.heaviest.allocated_bytes == max(peaks)
    assert len(answer.ranks) == 1 + (max(peaks) > peaks[0])
    assert any("data-parallel rank" in note for note in answer.notes) == (max(peaks) > peaks[0])
    assert sum(rank.num_ranks for rank in answer.ranks) == 8


def test_what_views_keep_gathered_is_said() -> None:
    """Experts of Mixtral: 32 layers of 8 experts, three matrices of 4096 × 14336 in bf16."""
    run = {"model": "mixtral-8x7b", "sharding": {"zero": 3}, "hardware": {"gpus": 16}}
    gib = 32 * 8 * 3 * 4096 * 14336 * 2 / 2**30
    assert any(note.startswith(f"{gib:.2f} GiB of weights stay gathered") for note in estimate(read_run(run)).notes)
    assert not any("stay gathered" in note for note in estimate(read_run(run, recompute="full")).notes)
