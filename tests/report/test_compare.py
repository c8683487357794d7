"""Comparisons in words."""

from __future__ import annotations

import json
from dataclasses import replace

from memcalc.engine.result import Serving
from memcalc.report.compare import as_json, comma_separated, markdown, sentence, text
from memcalc.report.style import Style
from memcalc.whatif.compare import Comparison, compared
from tests.report.estimates import ASKED, estimate, rank

LESS = {**ASKED, "sharding": {**ASKED["sharding"], "tp": 4, "dp": 1}}  # type: ignore[dict-item]


def comparison() -> Comparison:
    """Two runs, the second at half."""
    half = replace(estimate(capacity=None), ranks=(rank(0, scale=2),), asked=LESS, notes=("half as much",))
    return compared({"whole": estimate(), "half": half})


def test_the_sentence_says_what_moved_and_why() -> None:
    said = sentence(comparison(), 1)
    assert said == (
        "half allocates 14.25 GiB less than whole: activations −5.00, optimizer −6.00 (cut 4 ways, not 4), weights −3.25 (cut 4 ways, not 2), "
        "with dp 2 → 1, tp 2 → 4; half as much."
    ) or said.startswith("half allocates 14.25 GiB less than whole: optimizer −6.00")
    assert "with dp 2 → 1, tp 2 → 4" in said or "with tp 2 → 4, dp 2 → 1" in said
    assert said.endswith("; half as much.")


def test_equal_runs_are_said_to_be_equal() -> None:
    same = compared({"a": estimate(), "b": estimate()})
    assert sentence(same, 1) == "b allocates as much as a, with nothing changed that bears on it."


def test_servers_are_compared_by_what_their_pools_hold() -> None:
    pools = [Serving("vllm", "bfloat16", 72, 50, 2, 25, 16, 8192, 16_384, many, 131_072) for many in (52.9, 50.7)]
    found = compared({name: replace(estimate(), serving=pool) for name, pool in zip("ab", pools, strict=True)})
    lines = [line.split() for line in text(found, Style(100)).splitlines()]
    assert ["sequences", "52.90", "50.70"] in lines
    assert ["longest", "131,072", "131,072"] in lines


def test_every_form() -> None:
    found = comparison()
    page = text(found, Style(120))
    assert "A − B" not in page
    assert "B − A" in page
    assert "A verdict fits a100-80g" in " ".join(page.split())
    assert json.loads(as_json(found))["summary"] == [sentence(found, 1)]
    assert "| **allocated**" in markdown(found)
    assert comma_separated(found).splitlines()[0] == "path,whole,half"


def test_a_narrow_page_has_several_tables() -> None:
    """Each holds the first run beside as many others as there is room for."""
    found = compared({name: estimate() for name in ("one", "two", "three")})
    assert "C − A" in next(line for line in text(found, Style(110)).splitlines() if "B − A" in line)
    narrow = text(found, Style(60)).splitlines()
    assert max(map(len, narrow)) <= 60
    assert [line.split()[:2] for line in narrow if " − A" in line and line.startswith(" ")] == [["A", "B"], ["A", "C"]]
