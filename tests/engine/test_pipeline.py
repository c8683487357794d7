"""Pipelines."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.engine.pipeline import walk_stages
from memcalc.engine.result import Instant, RankEstimate
from tests.engine.toy import job, llama

KEPT = ("weights", "optimizer", "buffers", "gradients", "batch")
"""What is there when a step is over."""


def by_stage(**keys: Any) -> list[RankEstimate]:
    """The ranks of a toy model in the order of the stages."""
    answer = estimate_job(job(llama(), **keys))
    return sorted(answer.ranks, key=lambda r: r.rank["pp"])


def at(rank: RankEstimate, name: str) -> Instant:
    """One instant."""
    return next(i for i in rank.instants if i.name == name)


def saved(instant: Instant, *, layers: bool = True) -> int:
    """Bytes of activations, of layers alone."""
    return sum(t.bytes for t in instant.terms if t.path.startswith("activations/layers/" if layers else "activations/"))


def test_every_stage_is_there_and_the_most_loaded_is_first() -> None:
    """Four stages of two ranks each."""
    answer = estimate_job(job(llama(), pp=4, dp=2))
    assert sorted(r.rank["pp"] for r in answer.ranks) == [0, 1, 2, 3]
    assert {r.num_ranks for r in answer.ranks} == {2}
    assert [r.allocated_bytes for r in answer.ranks] == sorted((r.allocated_bytes for r in answer.ranks), reverse=True)
    assert answer.peak.rank == answer.most_loaded.rank


def test_one_micro_batch_saves_on_all_stages_what_one_card_saves() -> None:
    """Activations of the layers, and all states, sum to those of the whole model."""
    whole = estimate_job(job(llama(), grad_accum=1)).most_loaded
    stages = by_stage(pp=4, grad_accum=1)
    assert sum(saved(at(r, "forward_end")) for r in stages) == saved(at(whole, "forward_end"))
    assert sum(at(r, "start").allocated_bytes for r in stages) == at(whole, "start").allocated_bytes


@pytest.mark.parametrize("grad_accum", [1, 3, 16])
def test_stage_i_saves_as_many_micro_batches_as_are_in_flight(grad_accum: int) -> None:
    """min(m, p − i) under 1F1B."""
    one = [saved(at(r, "forward_end")) for r in by_stage(pp=4, grad_accum=1)]
    many = [saved(at(r, "forward_end")) for r in by_stage(pp=4, grad_accum=grad_accum)]
    assert many == [min(grad_accum, 4 - i) * n for i, n in enumerate(one)]


def test_micro_batches_that_were_not_counted_fill_the_pipeline() -> None:
    """Without grad_accum the steady state is shown."""
    assert [r.allocated_bytes for r in by_stage(pp=4)] == [r.allocated_bytes for r in by_stage(pp=4, grad_accum=64)]


def test_interleaving_saves_more_by_korthikantis_factor() -> None:
    """1 + (p − 1) / (p·v) on the first stage."""
    plain, woven = (saved(at(by_stage(pp=4, vpp=v)[0], "forward_end")) for v in (1, 2))
    assert woven * 8 == plain * 11


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"vpp": 2},
        {"pp_schedule": "gpipe", "grad_accum": 5},
        {"recompute": "full"},
        {"attention": "eager"},
        {"grad_accum": 1},
        {"pp_schedule": "zero_bubble"},
        {"pp_schedule": "zbv", "vpp": 2},
    ],
)
def test_a_step_leaves_states_and_gradients(keys: dict[str, Any]) -> None:
    """What was in flight has landed, and nothing is freed twice (the loss itself, a scalar, apart)."""
    for walked in walk_stages(job(llama(), pp=4, **keys)):
        assert {p: n for p, n in walked.walk.by_path.items() if abs(n) > 4 and p.split("/")[0] not in KEPT} == {}


def test_uniform_recomputation_keeps_one_input_for_n_layers() -> None:
    """Half as many hidden states with n = 2, and a working set of two layers."""
    each, two = (at(by_stage(pp=2, recompute="full", recompute_method="uniform", recompute_num_layers=n, grad_accum=1)[0], "forward_end") for n in (1, 2))
    streams = [next(t.bytes for t in i.terms if t.path == "activations/hidden_states") for i in (each, two)]
    assert streams[0] == 4 * 2 * 128 * 256 + 2 * 128 * 256
    assert streams[1] == 2 * 2 * 128 * 256 + 2 * 128 * 256


def test_block_recomputation_checkpoints_the_first_n_layers() -> None:
    """With n the layers of a stage it is full recomputation, with none of them none."""
    full = by_stage(pp=2, recompute="full")
    assert [r.allocated_bytes for r in by_stage(pp=2, recompute="full", recompute_method="block", recompute_num_layers=4)] == [r.allocated_bytes for r in full]
    half = by_stage(pp=2, recompute="full", recompute_method="block", recompute_num_layers=2)
    ends = [[at(r, "forward_end").allocated_bytes for r in ranks] for ranks in (full, half, by_stage(pp=2))]
    assert all(a < b < c for a, b, c in zip(*ends, strict=True))


@pytest.mark.parametrize(
    "keys",
    [{}, {"grad_accum": 1}, {"grad_accum": 3}, {"vpp": 2}, {"pp_schedule": "gpipe", "grad_accum": 5}, {"pp_schedule": "zero_bubble"}, {"code": "megatron"}],
)
def test_without_details_stages_are_left_out_that_hold_the_most_at_no_instant(keys: dict[str, Any]) -> None:
    asked = job(llama(), pp=4, **keys)
    every, some = walk_stages(asked), walk_stages(asked, detailed=False)
    assert len(some) <= len(every) == 4
    for name in every[0].walk.instants:
        assert max(one.walk.instants[name].total for one in some) == max(one.walk.instants[name].total for one in every)


def test_zero_bubble_holds_gradients_of_outputs_beside_what_was_saved() -> None:
    """On the last of four stages those of four micro-batches: of each layer's seven products and two norms; on the first none, which runs back at once."""
    ranks = by_stage(pp=4, pp_schedule="zero_bubble", grad_accum=12)
    held = [sum(t.bytes for t in at(rank, "backward_peak").terms if "await" in t.path) for rank in ranks]
    hidden, kv, intermediate, tokens = 256, 128, 688, 128
    layer = 2 * tokens * (2 * hidden + 2 * kv + hidden + 2 * intermediate + hidden)
    assert held[0] == 0
    assert held[1] >= 2 * 2 * layer
    assert held[3] >= 4 * 2 * layer
    plain = by_stage(pp=4, grad_accum=12)
    assert at(ranks[3], "backward_peak").allocated_bytes > at(plain[3], "backward_peak").allocated_bytes


def test_zbv_puts_both_ends_on_the_first_stage() -> None:
    ranks = by_stage(pp=4, vpp=2, pp_schedule="zbv", grad_accum=12)
    ends = [{t.path for t in at(rank, "start").terms if t.path in ("weights/embed_tokens", "weights/lm_head")} for rank in ranks]
    assert ends == [{"weights/embed_tokens", "weights/lm_head"}, set(), set(), set()]
