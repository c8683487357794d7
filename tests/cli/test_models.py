"""``memcalc models``."""

from __future__ import annotations

import json

import pytest

from tests.cli.run import Cli


def test_show_totals_the_parameters(cli: Cli) -> None:
    assert "6,738,415,616" in cli("models", "show", "llama-7b").out
    data = json.loads(cli("models", "show", "llama-7b", "--format", "json").out)
    assert data["params"]["total"] == data["tree"]["params"] == 6738415616
    assert sum(part["params"] for part in data["tree"]["parts"]) == 6738415616


def test_show_gives_the_cache_of_a_token(cli: Cli) -> None:
    assert json.loads(cli("models", "show", "llama-3.1-70b", "--format", "json").out)["cache_bytes_per_token"] == 327680


def test_the_list_is_filtered_by_words(cli: Cli) -> None:
    names = [entry["name"] for entry in json.loads(cli("models", "llama", "70b", "--format", "json").out)]
    assert "llama-2-70b" in names
    assert all("70b" in name for name in names)


@pytest.mark.parametrize("form", ["table", "markdown", "csv"])
def test_other_forms_of_the_list(cli: Cli, form: str) -> None:
    assert "llama-7b" in cli("models", "llama-7b", "--format", form).out
    assert "embed_tokens" in cli("models", "show", "llama-7b", "--format", form).out


def test_numbers_of_csv_are_for_programs(cli: Cli) -> None:
    assert cli("models", "qwen3-0.6b", "--format", "csv").out.splitlines()[1].startswith("qwen3-0.6b,qwen3,596049920,")


def test_what_is_not_there_is_refused(cli: Cli) -> None:
    assert "no model of the catalogue holds" in cli.refused("models", "nosuchmodel")
    assert "one model is shown at a time" in cli.refused("models", "show")
    assert "unknown model" in cli.refused("models", "show", "nosuchmodel")
    assert "--depth" in cli.refused("models", "show", "llama-7b", "--depth", "x")
