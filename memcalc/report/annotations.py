"""Findings for other tools: GitHub's annotations, JUnit's XML, SARIF.

Sources: GitHub, "Workflow commands for GitHub Actions"; the JUnit schema that Jenkins and GitLab read; OASIS SARIF 2.1.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree as Xml

from memcalc.engine.result import Estimate
from memcalc.report import words
from memcalc.whatif.findings import RULES, Finding

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
KINDS = 3


def message(found: Finding) -> str:
    """A finding in one line."""
    if found.estimate is None or found.estimate.verdict is None:
        return found.reason
    return f"{words.verdict_line(found.estimate.verdict)}; peak in {words.instant(found.estimate.peak.name)}: {_kinds(found.estimate)}"


def title(found: Finding) -> str:
    """What an annotation is headed."""
    if found.estimate is None:
        return "memcalc: bad input"
    return f"memcalc: {found.estimate.model.name} {found.rule.name.replace('-', ' ')}"


def github(found: Iterable[Finding]) -> str:
    """Workflow commands, one a line.

    >>> github([])
    ''
    """
    lines = []
    for one in found:
        command = {"error": "error", "warning": "warning", "note": "notice"}[one.level]
        place = f"file={_property(one.file)},line={one.line}," if one.file else ""
        lines.append(f"::{command} {place}title={_property(title(one))}::{_data(message(one))}")
    return "\n".join(lines)


def junit(rows: Sequence[tuple[str, Estimate | None, Sequence[Finding]]]) -> str:
    """A test case a run: its name, its answer, its findings."""
    cases = []
    for name, estimate, found in rows:
        card = estimate.verdict.gpu if estimate is not None and estimate.verdict is not None else None
        called = name or (estimate.model.name if estimate is not None else "run")
        case = Xml.Element("testcase", {"name": called, "classname": f"memcalc.{card or 'limit' if estimate else 'input'}", **({"file": name} if name else {})})
        for one in found:
            tag = "error" if one.estimate is None else "failure" if one.level == "error" else "system-out"
            node = Xml.SubElement(case, tag, {} if tag == "system-out" else {"message": _xml(message(one)), "type": one.rule.id})
            node.text = (f"{_xml(one.file)}:{one.line}: " if one.file else "") + _xml(message(one))
        cases.append(case)
    failures = sum(1 for case in cases if case.find("failure") is not None)
    errors = sum(1 for case in cases if case.find("error") is not None)
    suite = Xml.Element("testsuite", {"name": "memcalc", "tests": str(len(cases)), "failures": str(failures), "errors": str(errors)})
    suite.extend(cases)
    root = Xml.Element("testsuites")
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, encoding="unicode")


def sarif(found: Iterable[Finding], *, version: str) -> str:
    """A SARIF log, for code scanning."""
    rules = [{"id": rule.id, "name": rule.name, "shortDescription": {"text": rule.help}} for rule in RULES]
    driver = {"name": "memcalc", "version": version, "rules": rules}
    log = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": [_result(one) for one in found]}]}
    return json.dumps(log, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- inside
def _result(one: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": one.rule.id, "level": one.level, "message": {"text": message(one)}}
    if one.file:
        place = {"artifactLocation": {"uri": one.file.replace("\\", "/")}, "region": {"startLine": one.line}}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _kinds(estimate: Estimate) -> str:
    unit = words.unit_of(estimate)
    kinds: dict[str, int] = {}
    for term in estimate.peak.terms:
        kind = term.path.split("/")[0]
        kinds[kind] = kinds.get(kind, 0) + term.bytes
    return ", ".join(f"{kind} {unit.full(kinds[kind])}" for kind in sorted(kinds, key=lambda k: -kinds[k])[:KINDS])


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _xml(text: str) -> str:
    """What XML 1.0 can hold of a text."""
    return "".join(c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000" else "?" for c in text)
