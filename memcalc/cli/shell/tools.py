"""Answers as findings for other tools: GitHub's annotations, JUnit, SARIF, with the line of the file that is to blame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from memcalc.cli.shell.command import Given
from memcalc.cli.shell.files import ENDINGS, Asked
from memcalc.engine.result import Estimate
from memcalc.errors import InputError

FOR_TOOLS = ("github", "junit", "sarif")
"""Formats of findings."""


class Case(NamedTuple):
    """One run.

    Attributes:
        name: as typed: its file, where it has one.
        asked: the run; None where it was refused.
        estimate: the answer, or None.
        refused: why there is none.
    """

    name: str
    asked: Asked | None
    estimate: Estimate | None
    refused: InputError | None = None


def for_tools(cases: Sequence[Case], format_name: str, *, margin_counts: bool) -> str:
    """All findings in a format; a margin that is given makes less room an error."""
    from memcalc import __version__
    from memcalc.report import annotations
    from memcalc.whatif.findings import findings

    found = [
        (case.name, case.estimate, list(findings(case.name, case.estimate, str(case.refused or ""), margin_counts=margin_counts, places=places_of(case.asked))))
        for case in cases
    ]
    if format_name == "junit":
        return annotations.junit(found)
    every = [finding for _, _, some in found for finding in some]
    return annotations.github(every) if format_name == "github" else annotations.sarif(every, version=__version__)


def places_of(question: Asked | None) -> dict[str, tuple[str, int]]:
    """File and line of each key that files of other frameworks say."""
    if question is None or question.imported is None:
        return {}
    found = {}
    for origin in question.imported.origins:
        match = re.fullmatch(r"(.+):(\d+)", origin.where)
        if match and not origin.is_default:
            found[origin.key] = (match[1], int(match[2]))
    return found


def file_of(given: Given) -> str:
    """The file of a command line's run; empty where there is none."""
    own = given.text("config") or next((word for word in given.arguments if word.endswith(ENDINGS)), "")
    return own or (given.text("from") or "").split(",")[0]


__all__ = ["FOR_TOOLS", "Case", "file_of", "for_tools", "places_of"]
