"""Tokens of a batch: every length's crossing, found along the slope."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memcalc.engine.resolve import resolve
from memcalc.specs.read import read_run
from memcalc.units import GiB
from memcalc.whatif import tokens
from memcalc.whatif.fit import need, needs
from memcalc.whatif.tokens import first_unfit, most_tokens


@pytest.mark.parametrize("near", [1, 3_000, 10**8])
@pytest.mark.parametrize("keys", [{}, {"attention": "eager"}, {"code": "megatron", "tp": 2, "gpus": 2, "zero": 1}, {"zero": 3, "gpus": 4}], ids=str)
def test_a_batch_less_fits_at_every_length_wherever_the_search_begins(keys: dict[str, Any], near: int) -> None:
    job, room = resolve(read_run("qwen2.5-0.5b", **keys)), 24 * GiB
    lengths = np.asarray([1, 2, 7, 64, 500, 4096, 20_000])
    batches = first_unfit(job, lengths, room, near=near)
    assert (needs(job, batches, lengths) > room).all()
    able = batches > 1
    assert (needs(job, batches[able] - 1, lengths[able]) <= room).all()
    one = replace(job, micro_batch=int(batches[3]), seq_len=64)
    assert need(one) > room >= need(replace(one, micro_batch=one.micro_batch - 1))


def test_what_the_slope_does_not_lead_to_is_closed_in_on_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    job, room, lengths = resolve(read_run("qwen2.5-0.5b")), 24 * GiB, np.asarray([16, 512])
    found = first_unfit(job, lengths, room, near=1000)
    monkeypatch.setattr(tokens, "ROUNDS", 0)
    assert (first_unfit(job, lengths, room, near=1000) == found).all()


def test_long_sequences_are_looked_at_in_steps() -> None:
    found = most_tokens(resolve(read_run("qwen2.5-0.5b", seq_len=8192)), 24 * GiB, near=6000)
    assert (found.every, found.seq_len) == (2, 8192)
    assert found.worst[0] * found.worst[1] == found.bound + 1


@pytest.mark.parametrize("task", ["grpo", "ppo"])
def test_lengths_that_a_framework_leaves_open_move_as_estimates_have_them(task: str) -> None:
    """Every shape is looked at, down to a prompt and an answer of a token; the first that does not fit is one that a run of its sizes needs as much for."""
    keys: dict[str, Any] = {"task": task, "rl": {"framework": "trl"}, "micro_batch": 1}
    job, room = resolve(read_run("smollm2-135m", **keys)), 8 * GiB
    batch, seq = most_tokens(job, room, near=10_000).worst
    assert seq < job.seq_len
    assert [need(resolve(read_run("smollm2-135m", **{**keys, "micro_batch": b, "seq_len": seq}))) <= room for b in (batch - 1, batch)] == [True, False]
