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


BESIDE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.93 GiB. GPU 0 has a total capacity of 79.14 GiB of which 3.79 GiB is free. "
    "Process 13118 has 75.33 GiB memory in use. Of the allocated memory 73.96 GiB is allocated by PyTorch, and 639.99 MiB is reserved by PyTorch but "
    "unallocated.\n"
)


def test_a_server_that_starts_and_then_finds_no_room_is_given_a_smaller_share(cli: Cli, tmp_path: Path) -> None:
    """https://github.com/sgl-project/sglang/issues/4547: a request with images, beside weights and cache."""
    file = tmp_path / "server.log"
    file.write_text(BESIDE, encoding="utf-8")
    command = "python3 -m sglang.launch_server --model-path Qwen/Qwen2.5-VL-7B-Instruct"
    said = " ".join(cli("diagnose", str(file), "--gpu", "a100-80g", "--", *command.split()).out.split())
    assert "lower mem_fraction_static, by 0.02 or more" in said
    assert "a larger share of the card" not in said
