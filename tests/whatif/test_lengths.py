"""A run over a distribution of lengths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memcalc.engine.resolve import resolve
from memcalc.specs.read import read_run
from memcalc.whatif.fit import need
from memcalc.whatif.lengths import spread
from memcalc.whatif.lengths.distribution import counted
from memcalc.whatif.lengths.read import lengths_of

RUN = read_run("qwen2.5-0.5b", gpu="12GiB", micro_batch=2, seq_len=512)


@pytest.mark.parametrize("sampler", ["random", "length-grouped", "token-budget"])
def test_what_is_called_safe_fits_and_what_is_called_too_long_does_not(sampler: str) -> None:
    found = counted(np.bincount([100] * 900 + [400] * 90 + [1500] * 9 + [30_000]), name="documents")
    wide = spread(RUN, found, sampler=sampler, budget=1500)
    assert 0 < wide.safe_length < 30_000
    job = resolve(RUN)
    room = wide.room.room_bytes
    assert (
        need(replace(job, seq_len=wide.safe_length, micro_batch=1 if sampler == "token-budget" else 2))
        <= room
        < need(replace(job, seq_len=30_000, micro_batch=1))
    )
    assert wide.chance == 1.0
    assert wide.points[-1].length == 30_000
    assert wide.points[-1].need_bytes > room
    assert wide.budget == 0
    for bucket in wide.buckets:
        if bucket.sequences:
            assert bucket.need_bytes <= room < need(replace(job, micro_batch=bucket.sequences + 1, seq_len=bucket.length))
    assert sum(bucket.share for bucket in wide.buckets) == pytest.approx(1.0)


def test_lengths_that_all_fit_leave_no_chance_and_a_budget() -> None:
    wide = spread(RUN, lengths_of("uniform:min=10,max=600", num_samples=5000))
    assert (wide.chance, wide.survives, wide.cut_samples) == (0.0, True, 0.0)
    assert wide.budget >= 2 * 600
    job = resolve(RUN)
    assert all(need(replace(job, micro_batch=wide.budget // n, seq_len=n)) <= wide.room.room_bytes for n in (10, 100, 600))


def test_the_command_shows_batches_beside_the_incidents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from memcalc.cli import main

    file = tmp_path / "lengths.txt"
    file.write_text("100\n" * 99 + "40000\n", encoding="utf-8")
    words = ["stress", "qwen2.5-0.5b", "--gpu", "12GiB", "--micro-batch", "2", "--seq-len", "512", "--lengths", str(file), "--only", "loss-spike"]
    assert main(words) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "lengths/max" in out
    assert "some batch of an epoch does not fit with probability 1 (2.00% by step 1" in out
    assert "truncation at" in out
