"""Plans: what fits, in the order of its cost."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.models.read import read_model
from memcalc.report.plan import head
from memcalc.specs.read import read_run
from memcalc.whatif import plan as module
from memcalc.whatif.candidates import cost_parts, least_bytes, model_of, ways
from memcalc.whatif.fit import need
from memcalc.whatif.plan import ENGINES, REACH, Plans, plan


def planned(model: str = "llama-3.1-8b", *, batch: int = 64, **keys: Any) -> Plans:
    asked: dict[str, Any] = {"gpus": 8, "gpu": "a100-80g", "seq_len": 4096}
    return plan(read_run(model, **(asked | keys)), global_batch=batch)


def test_every_plan_fits_has_the_global_batch_and_all_cards() -> None:
    found = planned("llama-3.1-70b", gpus=64, gpu="h100-80g", batch=256)
    assert found.fitting
    for one in found.fitting:
        way = one.way
        assert way.dp * way.tp * way.pp * way.cp == 64
        assert way.dp * way.micro_batch * way.grad_accum == 256
        assert need(resolve(one.run)) == one.need_bytes <= found.room.room_bytes
    assert [one.way.cost for one in found.fitting] == sorted(one.way.cost for one in found.fitting)
    verdict = estimate(found.fitting[0].run).verdict
    assert verdict is not None
    assert verdict.fits


def test_nothing_that_is_cheaper_and_fits_is_left_out() -> None:
    """Against an estimate of every way, on a card that few fit; what does not get by when it is played is not shown."""
    found = planned("qwen2.5-1.5b", gpus=4, gpu="14GiB", batch=8, seq_len=2048)
    base = read_run("qwen2.5-1.5b", gpus=4, gpu="14GiB", seq_len=2048, attention="flash_attention_2")
    model = model_of(read_model("qwen2.5-1.5b"), seq_len=2048, global_batch=8, gpus=4)
    dearest = found.fitting[-1].way.cost
    able = set()
    for way in ways(model, ENGINES):
        if way.cost < dearest and way.recompute != "selective":
            try:
                able.add((way, need(resolve(read_run(base, **way.keys()))) <= found.room.room_bytes))
            except InputError:
                continue
    shown = {one.way for one in found.fitting}
    assert len({way for way, fits in able if fits} - shown) <= found.num_failed


@pytest.mark.parametrize(("name", "gpus"), [("llama-3.1-8b", 16), ("mixtral-8x7b", 32), ("gpt2", 4)])
def test_the_bound_from_below_is_below(name: str, gpus: int) -> None:
    model = model_of(read_model(name), seq_len=1024, global_batch=gpus * 4, gpus=gpus)
    checked = 0
    for way in list(ways(model, ENGINES))[::17]:
        try:
            exact = need(resolve(read_run(name, **way.keys(), gpus=gpus, seq_len=1024, attention="flash_attention_2")))
        except InputError:
            continue
        checked += 1
        assert least_bytes(way, model) <= exact, way
    assert checked > 5


def test_keys_that_are_given_are_kept() -> None:
    found = planned(engine="deepspeed", zero=3, recompute="full")
    assert {(one.way.engine, one.way.zero, one.way.recompute) for one in found.fitting} == {("deepspeed", 3, "full")}
    assert all(one.way.engine == "megatron" for one in planned(code="megatron").fitting)


def test_costs_follow_their_formulas() -> None:
    model = model_of(read_model("llama-3.1-8b"), seq_len=4096, global_batch=64, gpus=64)
    way = next(w for w in ways(model, ("megatron",)) if (w.tp, w.pp, w.vpp, w.cp, w.dp, w.micro_batch, w.recompute) == (2, 4, 1, 1, 8, 1, "full"))
    parts = cost_parts(way, model)
    assert parts["recompute"] == pytest.approx(1 / 3)
    assert parts["bubble"] == pytest.approx(3 / 8)
    assert parts["tensor"] > 0
    assert way.cost == pytest.approx(1 + sum(parts.values()))


def test_what_cannot_be_planned_is_said() -> None:
    with pytest.raises(InputError, match="--gpus"):
        planned(gpus=None)
    with pytest.raises(InputError, match="training"):
        planned(task="inference")
    with pytest.raises(InputError, match="no way to spread"):
        planned(batch=7, dp=8)
    assert planned("llama-3.1-405b").fitting == ()


def test_405b_is_planned_as_it_was_trained_or_leaner() -> None:
    """Published: tp 8, pp 16, no recomputation (Llama Team 2024, table 4 and section 3.3.2); docs/plan.md argues where the first differ."""
    found = planned("llama-3.1-405b", gpus=16384, gpu="h100-80g", seq_len=8192, batch=2048)
    tried = [found.fitting[i].way for i in found.trials]
    assert [(way.tp, way.pp, way.cp) for way in tried] == [(8, 8, 4), (8, 8, 2), (8, 16, 4)]
    assert all((way.micro_batch, way.recompute) == (1, "none") for way in tried)
    assert [round(way.cost, 2) for way in tried] == [1.14, 1.16, 1.17]
    degrees = {"tp": 8, "pp": 16, "vpp": 4, "cp": 1, "micro_batch": 1, "recompute": "none"}
    published = next(way for way in ways(found.model, ("megatron",)) if all(getattr(way, key) == value for key, value in degrees.items()))
    assert (published.dp, published.grad_accum, round(published.cost, 2)) == (128, 16, 1.33)
    need_bytes = need(resolve(read_run("llama-3.1-405b", **published.keys(), gpus=16384, seq_len=8192, attention="flash_attention_2")))
    assert round(need_bytes / 2**30, 1) == 85.7


def test_behind_those_asked_for_stands_the_front() -> None:
    """Each of the others needs less than all that cost less, and is not too dear."""
    found = planned("llama-3.1-8b", gpus=16, batch=128)
    shown, leaner = found.fitting[: found.top], found.fitting[found.top :]
    assert leaner
    assert all(one.on_front and one.way.cost <= REACH * shown[0].way.cost for one in leaner)
    assert [one.on_front for one in found.fitting] == [
        all(one.need_bytes < before.need_bytes for before in found.fitting[:i]) for i, one in enumerate(found.fitting)
    ]


def test_what_the_allocator_does_not_get_by_with_is_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    first = planned(engine="deepspeed").fitting[0]
    monkeypatch.setattr(module, "plays", lambda job, room: job.asked != first.run)
    found = planned(engine="deepspeed")
    assert found.num_failed == 1
    assert first.way not in {one.way for one in found.fitting}
    assert all(one.played == (i in found.trials) for i, one in enumerate(found.fitting))


def test_what_was_not_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WALKS", 2)
    found = planned(gpus=16, batch=128)
    assert found.num_left > 0
    assert "were not looked at" in head(found)
