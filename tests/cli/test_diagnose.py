"""`memcalc diagnose`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.cli.run import Cli

LINE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.14 GiB (GPU 5; 31.75 GiB total capacity; 28.28 GiB already allocated; "
    "1.95 GiB free; 28.28 GiB reserved in total by PyTorch)\n"
)
RUN = (
    "model: llama-7b\ndtype: float16\nrecompute: full\nseq_len: 512\noptimizer_foreach: false\n"
    "sharding: {engine: deepspeed, zero: 2, dp: 8}\nhardware: {gpu: v100-32g}\n"
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log with one message."""
    path = tmp_path / "train.log"
    path.write_bytes(b"\xff\x00 not text\n" + LINE.encode())
    return str(path)


def test_a_log_and_its_run_name_the_tensor(cli: Cli, log: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(RUN, encoding="utf-8")
    done = cli("diagnose", log, "--run", str(file), "--no-ladder")
    said = " ".join(done.out.split())
    assert done.status == 1
    assert "it is one vector in fp32 of this rank's partition: num_params * width / ranks = 6738415616 * 4 / 8 = 3.14 GiB" in said
    data = json.loads(cli("diagnose", log, "--run", str(file), "--format", "json").out)
    assert data["findings"][0]["tensors"][0]["bytes"] == 6738415616 // 2
    assert data["findings"][0]["line"] == 2


def test_stdin_is_read_and_no_message_is_no_failure(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    healthy = tmp_path / "healthy.log"
    healthy.write_text("step 1: loss 2.3\n" * 3, encoding="utf-8")
    done = cli("diagnose", str(healthy))
    assert (done.status, done.out) == (0, "no out-of-memory message in 3 lines\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(LINE))
    assert "3.14 GiB could not be had" in cli("diagnose", "-").out


def test_keys_of_a_run_without_its_model_are_not_passed_over(cli: Cli, log: str) -> None:
    assert "no model given" in cli.refused("diagnose", log, "--zero", "2")


def test_a_log_that_is_not_there_is_said_in_one_line(cli: Cli) -> None:
    assert "cannot be read" in cli.refused("diagnose", "/no/such/train.log")
