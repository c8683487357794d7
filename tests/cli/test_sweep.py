"""`memcalc sweep`."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

from tests.cli.run import Cli

LLAMA = ("sweep", "llama-7b", "--gpu", "a100-80g")


def test_the_exit_status_says_whether_all_fit(cli: Cli) -> None:
    assert cli(*LLAMA, "--seq-len", "512,1024").status == 0
    assert cli(*LLAMA, "--seq-len", "1024:1048576:x4").status == 1
    assert cli("sweep", "llama-7b", "--seq-len", "1024:1048576:x4").status == 0
    assert cli("sweep", "llama-7b", "--seq-len", "1024,2048", "--limit", "1GiB").status == 1


def test_the_table_has_a_bar_and_the_cards_line_for_one_number(cli: Cli, monkeypatch: object) -> None:
    out = cli(*LLAMA, "--seq-len", "1024:16384:x2").out
    assert "┃ 79.14 GiB" in out
    assert "▶" in out or "█" in out
    assert "5 combinations: 3 fit, 2 do not" in out


def test_json_lines_are_one_object_each(cli: Cli) -> None:
    out = cli(*LLAMA, "--seq-len", "1024,2048", "--micro-batch", "1,2", "--format", "jsonl").out
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["values"] for row in rows] == [{"seq_len": s, "micro_batch": b} for b in (1, 2) for s in (1024, 2048)]
    assert all(row["fits"] in (True, False) for row in rows)


def test_json_counts(cli: Cli) -> None:
    data = json.loads(cli(*LLAMA, "--tp", "1,3", "--format", "json").out)
    assert data["schema_version"] == 1
    assert data["counts"]["invalid"] == 1


def test_csv_and_markdown_show_the_same_numbers(cli: Cli) -> None:
    words = (*LLAMA, "--recompute", "none,full", "--optimizer", "sgd,adamw_torch")
    rows = list(csv.DictReader(io.StringIO(cli(*words, "--format", "csv").out)))
    assert [row["recompute"] for row in rows] == ["none", "none", "full", "full"]
    page = cli(*words, "--format", "markdown").out
    assert all(f"{int(row['peak_bytes']) / 2**30:,.2f}" in page for row in rows)


def test_invalid_combinations_are_counted_and_explained_on_request(cli: Cli) -> None:
    words = ("sweep", "llama-7b", "--tp", "1,3,5")
    assert "2 cannot be" in cli(*words).out
    assert "32 attention heads" not in cli(*words).out
    assert "32 attention heads" in cli(*words, "--show-invalid").out
    assert "--show-invalid" not in cli(*words, "--show-invalid").out
    assert "1 × sharding.tp" in cli(*words, "--show-invalid", "--format", "markdown").out


def test_filters_sort_and_rows(cli: Cli) -> None:
    out = cli(*LLAMA, "--seq-len", "1024:1048576:x2", "--only", "fails", "--sort=-peak", "--rows", "2").out
    assert "1048576" in out.splitlines()[1]
    assert "more" in out
    assert "1 more" not in cli(*LLAMA, "--seq-len", "1024,2048", "--only", "fits").out


def test_switches_and_models_are_swept(cli: Cli) -> None:
    words = ("sweep", "llama-7b", "llama-13b", "--code", "megatron", "--tp", "2", "--over", "sp=true,false", "--format", "jsonl")
    rows = [json.loads(line)["values"] for line in cli(*words).out.splitlines()]
    assert [(row["model"], row["sp"]) for row in rows] == [(m, s) for m in ("llama-7b", "llama-13b") for s in ("true", "false")]


def test_a_run_file_is_swept(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("model: llama-7b\nhardware: {gpu: a100-80g}\n")
    out = cli("sweep", str(tmp_path / "run.yaml"), "--seq-len", "512,1024", "--quiet").out
    assert out == "2 combinations: 2 fit, 0 do not\n"


def test_bad_axes_are_refused_in_one_line(cli: Cli) -> None:
    assert "--tp" in cli.refused("sweep", "llama-7b", "--tp", "1,x")
    assert "goes nowhere" in cli.refused("sweep", "llama-7b", "--tp", "8:1")
    assert "whole number" in cli.refused("sweep", "llama-7b", "--seq-len", "0,2")
    assert "--sort" in cli.refused("sweep", "llama-7b", "--tp", "1,2", "--sort", "x")
    assert "--rows" in cli.refused("sweep", "llama-7b", "--tp", "1,2", "--rows", "x")
    assert "did you mean" in cli.refused("sweep", "llama-7", "--tp", "1,2")
    assert "unknown" in cli.refused("sweep", "llama-7b", "--over", "nonsense=1,2")


def test_what_is_too_much_is_refused_at_once(cli: Cli) -> None:
    begin = time.perf_counter()
    assert "'1:1000000000' has more than 10,000,000 values" in cli.refused("sweep", "llama-7b", "--seq-len", "1:1000000000")
    assert "10,000,000,000 combinations are more than" in cli.refused("sweep", "llama-7b", "--seq-len", "1:100000", "--micro-batch", "1:100000")
    assert time.perf_counter() - begin < 2


def test_a_model_that_there_is_not_is_no_combination(cli: Cli) -> None:
    """A slip of the pen must not pass in CI."""
    assert "unknown model 'nosuch'" in cli.refused("sweep", "llama-7b", "nosuch", "--seq-len", "1024,2048", "--limit", "100GiB")
