"""`memcalc plan`."""

from __future__ import annotations

import csv
import io
import json

from tests.cli.run import Cli

WORDS = ("plan", "llama-3.1-8b", "--gpus", "8", "--gpu", "a100-80g", "--global-batch", "64", "--seq-len", "2048")


def test_every_form_shows_the_same_plans(cli: Cli) -> None:
    data = json.loads(cli(*WORDS, "--format", "json").out)
    rows = list(csv.DictReader(io.StringIO(cli(*WORDS, "--format", "csv").out)))
    assert [int(row["need_bytes"]) for row in rows] == [one["need_bytes"] for one in data["plans"]]
    table, page = cli(*WORDS).out, cli(*WORDS, "--format", "markdown").out
    for one in data["plans"]:
        assert f"{one['need_bytes'] / 2**30:.2f}" in table
        assert f"{one['need_bytes'] / 2**30:.2f}" in page
    assert "Worth a trial" in table
    flags = table.partition("Worth a trial:")[2].partition("(")[2].partition(")")[0].split()
    assert cli("estimate", *WORDS[1:6], "--seq-len", "2048", "--attention", "flash_attention_2", *flags, "--quiet").status == 0
    assert "promises no" in table


def test_a_plan_is_written_for_its_framework(cli: Cli) -> None:
    done = cli(*WORDS, "--engine", "deepspeed", "--zero", "2", "--export", "deepspeed")
    assert done.status == 0
    assert json.loads(done.out)["zero_optimization"]["stage"] == 2
    assert "deepspeed ZeRO-2" in done.err


def test_what_serves_is_placed(cli: Cli) -> None:
    words = ("plan", "llama-3.1-70b", "--task", "inference", "--code", "vllm", "--gpu", "h100-80g", "--gpus", "8", "--max-model-len", "8192")
    done = cli(*words)
    assert done.status == 0
    assert "Fewest cards: 2 (tp 2)" in done.out
    assert cli(*words, "--global-batch", "1000").status == 1
    assert "of training" in cli(*words, "--export", "megatron").err


def test_a_plan_is_launched_by_torchrun(cli: Cli) -> None:
    line = cli(*WORDS, "--code", "megatron", "--export", "torchrun").out
    assert line.startswith("torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py")
    assert "--global-batch-size 64" in line
    line = cli(*WORDS, "--engine", "deepspeed", "--recompute", "full", "--export", "torchrun").out
    assert "--deepspeed ds_config.json" in line
    assert "--gradient_checkpointing" in line


def test_the_status_says_whether_there_is_a_plan(cli: Cli) -> None:
    assert cli(*WORDS).status == 0
    assert cli("plan", "llama-3.1-405b", *WORDS[2:]).status == 1
    assert "--global-batch" in cli.refused("plan", "llama-3.1-8b", "--gpus", "8", "--gpu", "a100-80g")
    assert "below 2^31" in cli.refused("plan", "llama-3.1-8b", "--gpus", "8", "--gpu", "a100-80g", "--global-batch", "99999999999")
    assert "--top" in cli.refused(*WORDS, "--top", "0")
    assert "--export" in cli.refused(*WORDS, "--engine", "fsdp2", "--export", "megatron")
