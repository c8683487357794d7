"""`memcalc advise`."""

from __future__ import annotations

import csv
import io
import json
import shlex

from tests.cli.run import Cli

WORDS = ("llama-3.1-8b", "--gpus", "8", "--gpu", "rtx4090-24g")


def test_the_flags_it_gives_make_the_run_fit(cli: Cli) -> None:
    done = cli("advise", *WORDS)
    assert done.status == 1
    flags = shlex.split(" ".join(done.out.split()).partition("Flags: ")[2])
    assert cli("estimate", *WORDS, *flags, "--quiet").status == 0


def test_every_form_has_the_same_rungs(cli: Cli) -> None:
    data = json.loads(cli("advise", *WORDS, "--format", "json").out)
    rows = list(csv.DictReader(io.StringIO(cli("advise", *WORDS, "--format", "csv").out)))
    page, table = cli("advise", *WORDS, "--format", "markdown").out, cli("advise", *WORDS).out
    assert [row["rung"] for row in rows] == [rung["name"] for rung in data["rungs"]]
    assert all(rung["name"] in page and rung["name"] in table for rung in data["rungs"])
    assert data["path_need_bytes"] <= data["room_bytes"]


def test_a_server_is_told_what_makes_it_start(cli: Cli) -> None:
    words = ("llama-3.1-70b", "--task", "inference", "--code", "vllm", "--gpu", "h100-80g", "--max-model-len", "8192")
    done = cli("advise", *words)
    assert done.status == 1
    flags = shlex.split(" ".join(done.out.split()).partition("Flags: ")[2])
    assert cli("estimate", *words, *flags, "--quiet").status == 0
    assert "share of its card" in cli.refused("advise", *words, "--limit", "60GiB")


def test_a_run_that_fits_exits_0(cli: Cli) -> None:
    done = cli("advise", "llama-7b", "--seq-len", "512", "--gpu", "a100-80g")
    assert done.status == 0
    assert "fits as it is" in done.out
    assert "no card" in cli.refused("advise", "llama-7b")
