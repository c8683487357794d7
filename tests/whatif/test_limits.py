"""How far a run can go: answers are tight."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.report.limits import notes
from memcalc.specs.read import read_run
from memcalc.whatif import limits as module
from memcalc.whatif.fit import need, needs, plays
from memcalc.whatif.limits import Limit, limits

JOBS: list[tuple[str, dict[str, Any]]] = [
    ("llama-7b", {"recompute": "full", "engine": "fsdp2", "gpus": 8}),
    ("qwen2.5-0.5b", {}),
    ("gemma-2-2b", {"attention": "eager"}),
    ("mixtral-8x7b", {"engine": "fsdp2", "gpus": 64, "recompute": "full"}),
    ("llama-3.1-8b", {"code": "megatron", "tp": 2, "sp": True, "pp": 2, "gpus": 8, "zero": 1}),
    ("falcon-mamba-7b", {"engine": "fsdp2", "gpus": 16}),
]

TINY = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 1000, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 1000, "max_position_embeddings": 4096, "head_dim": 64, "tie_word_embeddings": False, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
}  # fmt: skip


def answer(found: module.Limits, key: str) -> Limit:
    return next(one for one in found.answers if one.key == key)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job=st.sampled_from(JOBS), gib=st.integers(20, 140), batch=st.integers(1, 4))
def test_one_unit_more_does_not_fit_and_the_answer_does(monkeypatch: pytest.MonkeyPatch, job: tuple[str, dict[str, Any]], gib: int, batch: int) -> None:
    """By estimates of single jobs, on random cards."""
    monkeypatch.setattr(module, "plays", lambda job, room: need(job) <= room)
    model, keys = job
    found = limits(read_run(model, gpu=f"{gib}GiB", micro_batch=batch, seq_len=256, **keys))
    for key, field in (("seq_len", "seq_len"), ("micro_batch", "micro_batch")):
        one = answer(found, key)
        assert one.safe == one.bound
        if one.bound:
            assert need(replace(found.job, **{field: one.bound})) == one.need_bytes <= found.room.room_bytes
        assert need(replace(found.job, **{field: one.bound + one.step})) == one.above_bytes > found.room.room_bytes  # type: ignore[operator]
        assert one.bound % one.step == 0


def test_any_shape_of_so_many_tokens_fits_and_one_of_one_more_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plays", lambda job, room: need(job) <= room)
    found = limits(read_run("qwen2.5-0.5b", gpu="24GiB", seq_len=300))
    assert found.tokens is not None
    most, room = found.tokens.bound, found.room.room_bytes
    lengths = np.arange(1, 301)
    assert (needs(found.job, most // lengths, lengths) <= room).all()
    batch, length = found.tokens.worst
    assert batch * length == most + 1
    assert need(replace(found.job, micro_batch=batch, seq_len=length)) > room


@pytest.mark.parametrize(
    "keys",
    [{}, {"engine": "fsdp2", "gpus": 8, "recompute": "full"}, {"engine": "fsdp1", "gpus": 8}, {"zero": 3, "gpus": 8}, {"code": "megatron", "tp": 2, "gpus": 2}],
    ids=str,
)
def test_what_is_safe_is_played_through_and_one_more_is_not(keys: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    found = limits(read_run(str(tmp_path), gpu="2GiB", seq_len=512, **keys))
    for one in found.answers[:2]:
        assert 0 < one.safe <= one.bound
        assert plays(replace(found.job, **{one.key: one.safe}), found.room.room_bytes)
        assert not plays(replace(found.job, **{one.key: one.safe + 1}), found.room.room_bytes)


def test_a_margin_lowers_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plays", lambda job, room: need(job) <= room)
    asked = read_run("qwen2.5-0.5b", gpu="24GiB", seq_len=512)
    assert answer(limits(asked, margin=0.2), "seq_len").bound < answer(limits(asked), "seq_len").bound


def test_the_rank_of_adapters_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plays", lambda job, room: need(job) <= room)
    asked = read_run("qwen2.5-0.5b", lora_r=4, gpu="8GiB", seq_len=512)
    found = limits(asked)
    rank, room = answer(found, "lora.r"), found.room.room_bytes
    assert need(resolve(read_run(asked, lora_r=rank.bound))) <= room < need(resolve(read_run(asked, lora_r=rank.bound + 1)))


def test_as_many_layers_are_kept_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plays", lambda job, room: need(job) <= room)
    asked = read_run("llama-3.1-8b", code="megatron", tp=2, gpus=2, zero=1, seq_len=8192, micro_batch=2, gpu="110GiB")
    kept = answer(limits(asked), "layers kept")
    assert 0 < kept.bound < 32
    assert kept.asked == 32
    one_more = read_run(asked, recompute="full", recompute_method="block", recompute_num_layers=32 - kept.bound - 1)
    assert need(resolve(one_more)) == kept.above_bytes


def test_trials_double_and_then_halve_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "plays", lambda job, room: need(job) <= room)
    found = limits(read_run("qwen2.5-0.5b", gpu="24GiB", seq_len=512))
    tried = [probe.micro_batch for probe in found.probes]
    most = answer(found, "micro_batch").bound
    assert tried[:3] == [1, 2, 4]
    assert max(probe.micro_batch for probe in found.probes if probe.fits) == most
    assert min(probe.micro_batch for probe in found.probes if not probe.fits) == most + 1


def test_a_length_that_is_said_in_both_parts_does_not_move() -> None:
    asked = read_run("smollm2-135m", task="grpo", rollout={"prompt_length": 128, "response_length": 128})
    found, none = (answer(limits(asked, limit_bytes=size), "seq_len") for size in (4 * 2**30, 2**30))
    assert (found.bound, found.safe, found.above_bytes, none.bound) == (256, 256, None, 0)
    assert "say how long" in found.stop


def test_nothing_fits_a_card_that_is_too_small() -> None:
    found = limits(read_run("llama-7b", gpu="24GiB"))
    assert [one.bound for one in found.answers] == [0, 0]
    assert found.tokens is None


def test_a_model_without_more_positions_ends_there() -> None:
    length = answer(limits(read_run("gpt2", task="inference", gpu="24GiB")), "seq_len")
    assert length.bound == length.safe == 1024
    assert length.above_bytes is None
    assert "positions for 1024" in length.stop


def test_a_card_or_a_limit_is_needed() -> None:
    with pytest.raises(InputError, match="no card named"):
        limits(read_run("llama-7b"))


def test_an_asked_value_beyond_what_is_safe_that_gets_by_is_said() -> None:
    """Blocks of 1,960 tokens find a place where those of 1,934 do not."""
    found = limits(read_run("qwen2.5-0.5b", gpu="10GiB", seq_len=1960))
    length = found.answers[0]
    assert length.gets_by
    assert length.safe < 1960 <= length.bound
    assert notes(found) == [f"note: seq_len 1,960 as asked gets by, though {length.safe + 1:,} does not: where blocks find a place is a matter of their sizes"]
    assert not found.answers[1].gets_by
