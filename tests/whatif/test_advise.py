"""What to change in a run that does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.resolve import resolve
from memcalc.report import advise as report
from memcalc.report.style import Style
from memcalc.specs.read import read_run
from memcalc.whatif.advise import advise, changed, readings
from memcalc.whatif.fit import need
from memcalc.whatif.ladder import RUNGS

CASES: list[dict[str, Any]] = [
    {"model": "llama-7b", "micro_batch": 4, "gpu": "a100-80g"},
    {"model": "llama-3.1-8b", "gpus": 8, "gpu": "rtx4090-24g"},
    {"model": "llama-3.1-8b", "code": "megatron", "tp": 2, "gpus": 8, "gpu": "h100-80g", "seq_len": 16384},
    {"model": "llama-7b", "dtype": "float32", "attention": "eager", "gpu": "a100-80g", "seq_len": 1024},
]


@pytest.mark.parametrize("keys", CASES)
def test_the_path_fits_and_no_rung_alone_does_where_it_has_several(keys: dict[str, Any]) -> None:
    run = read_run(keys.pop("model"), **keys)
    found = advise(run)
    assert not found.fits
    assert found.path
    assert found.changed is not None
    verdict = estimate(found.changed).verdict
    assert verdict is not None
    assert verdict.fits
    assert need(resolve(found.changed)) == found.path_need_bytes <= found.room.room_bytes
    if len(found.path) > 1:
        assert not any(taken.suffices for taken in found.rungs if not taken.rung.changes_task)
    places = [RUNGS.index(rung) for rung, _ in found.path]
    assert places == sorted(places)


def test_a_rung_saves_what_two_estimates_differ_by() -> None:
    run = read_run("llama-7b", micro_batch=4, gpu="a100-80g")
    found = advise(run)
    for taken in found.rungs:
        there = changed(found.job, taken.keys)
        assert there is not None
        assert need(found.job) - need(there) == taken.saves_bytes
        assert readings(found.job)[found.instant] - readings(there)[found.instant] == taken.at_instant_bytes > 0


def test_what_changes_the_task_comes_after_all_else() -> None:
    found = advise(read_run("llama-7b", micro_batch=4, gpu="a100-80g"))
    assert not any(rung.changes_task for rung, _ in found.path)
    alone = advise(read_run("llama-3.1-8b", gpu="rtx4090-24g"))
    assert any(rung.changes_task for rung, _ in alone.path)


def test_a_run_that_fits_is_left_as_it_is() -> None:
    found = advise(read_run("llama-7b", seq_len=512, gpu="a100-80g"))
    assert found.fits
    assert found.path == ()
    assert found.rungs


def test_generation_is_advised_in_its_own_words() -> None:
    found = advise(read_run("qwen3-0.6b", task="inference", gpu="rtx4090-24g", micro_batch=32, seq_len=8192))
    names = {taken.rung.name for taken in found.rungs}
    assert "fewer sequences at once" in names
    assert "smaller batches, accumulated" not in names
    assert "changes what is read; longer documents are cut" in report.text(found, Style(100))


def test_there_may_be_no_way() -> None:
    found = advise(read_run("llama-3.1-405b", gpu="rtx4090-24g"))
    assert found.path == ()
    assert found.changed is None


def test_every_rung_says_what_it_costs() -> None:
    assert all(rung.cost and rung.name for rung in RUNGS)
    assert len({rung.name for rung in RUNGS}) == len(RUNGS)


def test_fused_kernels_are_proposed_where_there_are_some() -> None:
    """Of code whose kernels are known, once."""
    (rung,) = (rung for rung in RUNGS if rung.name == "fused kernels")
    asked = ({"model": "llama-3.2-1b"}, {"model": "gpt2"}, {"model": "llama-3.2-1b", "liger": True}, {"model": "llama-3.2-1b", "code": "megatron"})
    assert [list(rung.variants(resolve(read_run({"seq_len": 64, **keys})))) for keys in asked] == [[{"liger": True}], [], [], []]
