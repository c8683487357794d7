"""``memcalc diff``: what a change does to runs, as the body of a comment."""

from __future__ import annotations

import os

from memcalc.cli.check import answers, tell_refusals
from memcalc.cli.estimate import LIMIT, MARGIN, status
from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.errors import FAILED
from memcalc.cli.shell.files import FROM
from memcalc.cli.shell.output import OUT_FILE, format_option, sink
from memcalc.cli.shell.runs import run_options
from memcalc.errors import InputError

BASE = Option("base", "a snapshot of the answers before: what --format json writes", metavar="FILE")


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (*run_options(), FROM, LIMIT, MARGIN, BASE, format_option("markdown", "json"), OUT_FILE)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.report.diff import markdown
    from memcalc.whatif.diff import changes, read_snapshot, snapshot, state_of

    base = given.text("base")
    out = sink(given, default="markdown")
    if base is None and out.format != "json":
        raise InputError("needs a snapshot to compare with; write one with `memcalc diff RUN… --format json --out-file base.json`", where="--base")
    before = read_snapshot(base) if base is not None else {}
    found = list(answers(given))
    refusals = [question.refused for question, answer in found if answer is None and not os.path.exists(question.name)]  # noqa: PTH110 (a name may be anything)
    if len(refusals) == len(found) and refusals[0] is not None:
        raise refusals[0]
    tell_refusals(found)
    now = {question.name: state_of(answer, str(question.refused or "")) for question, answer in found}
    out.write(snapshot(now) if out.format == "json" else markdown(changes(before, now)))
    return max(FAILED if answer is None else status(answer, given) for _, answer in found)


COMMAND = Command(
    run,
    "What a change does to runs, term by term, as the body of a comment; nothing where nothing changed.",
    (Argument("FILE", "run files and files of other frameworks, each a run", required=True, many=True),),
    options,
    example=("memcalc diff runs/*.yaml --format json --out-file base.json", "memcalc diff --base base.json runs/*.yaml"),
)
