"""`memcalc limits`."""

from __future__ import annotations

import csv
import io
import json

import pytest

from memcalc.whatif import limits
from memcalc.whatif.fit import need
from tests.cli.run import Cli

SMALL = ("limits", "qwen2.5-0.5b", "--gpu", "6GiB", "--seq-len", "64")


@pytest.fixture(autouse=True)
def _not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator is played in the tests of `memcalc.whatif.limits`."""
    monkeypatch.setattr(limits, "plays", lambda job, room: need(job) <= room)


def test_every_form_shows_the_same_numbers(cli: Cli) -> None:
    data = json.loads(cli(*SMALL, "--format", "json").out)
    table, page = cli(*SMALL).out, cli(*SMALL, "--format", "markdown").out
    rows = {row["key"]: row for row in csv.DictReader(io.StringIO(cli(*SMALL, "--format", "csv").out))}
    for limit in data["limits"]:
        assert f"{limit['bound']:,}" in table
        assert f"{limit['bound']:,}" in page
        assert int(rows[limit["key"]]["bound"]) == limit["bound"]
    assert f"{data['tokens']['safe']:,} safe" in table
    assert [probe["micro_batch"] for probe in data["probes"]][:2] == [1, 2]


def test_it_exits_1_where_nothing_fits(cli: Cli) -> None:
    done = cli("limits", "llama-7b", "--gpu", "24GiB")
    assert done.status == 1
    assert "none" in done.out


@pytest.mark.parametrize(("model", "stop"), [("qwen2.5-0.5b", "the pool is full"), ("mamba-130m", "no longer one is looked for")])
def test_a_servers_pool_is_what_ends_it(cli: Cli, model: str, stop: str) -> None:
    """No trials are shown: no allocator has a say in it."""
    done = cli("limits", model, "--task", "inference", "--code", "vllm", "--gpu", "h100-80g", "--seq-len", "512")
    assert (done.status, done.err) == (0, "")
    assert stop in next(line for line in done.out.splitlines() if line.startswith("seq_len"))
    assert "by trial" not in done.out


def test_a_limit_stands_for_a_card(cli: Cli) -> None:
    assert "of the limit" in cli("limits", "qwen2.5-0.5b", "--limit", "20GiB", "--seq-len", "64", "--margin", "10%").out
    assert "no card named" in cli.refused("limits", "qwen2.5-0.5b")
