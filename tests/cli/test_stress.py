"""`memcalc stress`."""

from __future__ import annotations

import csv
import io
import json

from tests.cli.run import Cli

RUN = ("stress", "qwen2.5-0.5b", "--gpu", "24GiB", "--seq-len", "512")


def test_every_form_shows_the_same_numbers(cli: Cli) -> None:
    words = (*RUN, "--only", "loss,evaluation/logits", "--eval-samples", "200")
    data = json.loads(cli(*words, "--format", "json").out)
    rows = {row["incident"]: row for row in csv.DictReader(io.StringIO(cli(*words, "--format", "csv").out))}
    table, page = cli(*words).out, cli(*words, "--format", "markdown").out
    assert len(data["incidents"]) == len(rows)
    for incident in data["incidents"]:
        assert int(rows[incident["name"]]["extra_bytes"]) == incident["extra_bytes"]
        assert incident["name"] in table
        assert incident["name"] in page


def test_it_exits_1_where_one_that_was_asked_for_is_not_survived(cli: Cli) -> None:
    assert cli(*RUN, "--only", "loss-spike").status == 0
    done = cli(*RUN, "--only", "evaluation/logits", "--quiet")
    assert (done.status, done.out) == (1, "The run does not survive the one incident, evaluation/logits.\n")


def test_a_count_that_is_none_is_refused(cli: Cli) -> None:
    assert "--longest: '-3' is not a whole number from 1" in cli.refused(*RUN, "--longest", "-3")
