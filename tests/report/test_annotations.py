"""Findings for GitHub, JUnit and SARIF."""

from __future__ import annotations

import json
from xml.etree import ElementTree as Xml

from memcalc.report.annotations import github, junit, message, sarif
from memcalc.whatif.findings import DOES_NOT_FIT, REFUSED, Finding
from tests.report.estimates import GiB, estimate

TOO_MUCH = estimate(capacity=20 * GiB)


def finding(**changes: object) -> Finding:
    return Finding(DOES_NOT_FIT, "error", "runs/a,b:c.yaml", 7, TOO_MUCH)._replace(**changes)  # type: ignore[arg-type]


def test_githubs_command_escapes_what_would_end_it() -> None:
    line = github([finding(rule=REFUSED, estimate=None, reason="100% wrong,\nreally: yes")])
    assert line == "::error file=runs/a%2Cb%3Ac.yaml,line=7,title=memcalc%3A bad input::100%25 wrong,%0Areally: yes"


def test_a_message_says_how_much_and_of_what() -> None:
    said = message(finding())
    assert "does not fit" in said
    assert "optimizer 12.00 GiB" in said


def test_a_warning_is_a_warning() -> None:
    assert github([finding(level="warning")]).startswith("::warning file=")


def test_junit_has_a_case_a_run() -> None:
    text = junit([("bad.yaml", TOO_MUCH, [finding()]), ("good.yaml", estimate(), []), ("x.yaml", None, [finding(estimate=None, reason="<&>")])])
    suite = Xml.fromstring(text.encode()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "MEM001"


def test_sarif_names_rule_file_and_line() -> None:
    log = json.loads(sarif([finding()], version="1"))
    (result,) = log["runs"][0]["results"]
    assert result["ruleId"] in {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("runs/a,b:c.yaml", 7)
    assert log["version"] == "2.1.0"


def test_nothing_found_is_nothing_said() -> None:
    assert github([]) == ""
    assert json.loads(sarif([], version="1"))["runs"][0]["results"] == []
