"""``memcalc compare``: variants of one run, or runs of their own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.run import Cli

MODEL = "llama-7b"


def test_inline_variants_share_model_and_flags(cli: Cli) -> None:
    done = cli("compare", MODEL, "--seq-len", "512", "tp=1", "tp=2", "tp=2,micro_batch=2", "--format", "json")
    data = json.loads(done.out)
    assert [run["name"] for run in data["runs"]] == ["tp=1", "tp=2", "tp=2,micro_batch=2"]
    assert len(data["summary"]) == 2
    assert data["terms"][0]["differences"][0] == 0


def test_differences_are_signed_and_sum_to_the_whole(cli: Cli) -> None:
    data = json.loads(cli("compare", MODEL, "tp=1", "tp=2", "--format", "json").out)
    first, second = (run["peak"]["allocated_bytes"] for run in data["runs"])
    assert sum(term["differences"][1] for term in data["terms"]) == second - first


def test_the_sentence_names_what_changed_and_what_moved(cli: Cli) -> None:
    out = " ".join(cli("compare", MODEL, "optimizer=adamw_torch_fused", "optimizer=adamw_torch_fused,tp=2").out.split())
    assert "optimizer=adamw_torch_fused,tp=2 allocates" in out
    assert "less than optimizer=adamw_torch_fused" in out
    assert "tp 1 → 2" in out
    assert "(cut 2 ways, not 1)" in out


def test_a_stage_that_shards_nothing_is_said_in_the_sentence(cli: Cli) -> None:
    out = " ".join(cli("compare", MODEL, "tp=2,gpus=2", "tp=2,zero=2,gpus=2").out.split())
    assert "over one data-parallel rank shards nothing" in out


def test_run_files_and_models_stand_side_by_side(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("model: llama-7b\nseq_len: 2048\n")
    out = cli("compare", MODEL, str(path), "--micro-batch", "2").out
    assert "B − A" in out


def test_one_that_does_not_fit_is_an_exit_status_of_1(cli: Cli) -> None:
    done = cli("compare", MODEL, "--gpu", "h100-80g", "dtype=bfloat16", "dtype=float32")
    assert done.status == 1
    assert "does not fit" in done.out
    assert "fits h100-80g" in done.out


def test_too_few_runs_and_bad_variants_are_refused(cli: Cli) -> None:
    assert "at least two runs" in cli.refused("compare", MODEL)
    assert "at least two runs" in cli.refused("compare", MODEL, "tp=2")
    assert "'tp=2' is named twice" in cli.refused("compare", MODEL, "tp=2", "tp=2")
    assert "unknown key 'tpp'" in cli.refused("compare", MODEL, "tpp=2", "tp=1")
    assert "accepted: a whole number" in cli.refused("compare", MODEL, "tp=x", "tp=1")


def test_markdown_and_csv(cli: Cli) -> None:
    assert "| **allocated**" in cli("compare", MODEL, "tp=1", "tp=2", "--format", "markdown").out
    assert cli("compare", MODEL, "tp=1", "tp=2", "--format", "csv").out.startswith("path,tp=1,tp=2\n")


def test_a_variant_says_each_key_once(cli: Cli) -> None:
    assert cli.refused("compare", MODEL, "tp=1", "zero=3,zero=2") == "memcalc: compare: 'zero=3,zero=2' says zero twice"
