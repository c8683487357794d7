"""``memcalc check``: launch commands and files, a row each, before they are launched."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.cli.estimate import LIMIT, MARGIN, inputs_of, judged, status, with_inputs, written
from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.files import ENDINGS, EXPLAIN_INPUTS, FROM, Asked, asked
from memcalc.cli.shell.output import OUT_FILE, QUIET, format_option, sink
from memcalc.cli.shell.runs import run_options
from memcalc.errors import InputError
from memcalc.report.check import Checked


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (*run_options(), FROM, LIMIT, MARGIN, format_option("table", "json", "markdown", "csv"), EXPLAIN_INPUTS, OUT_FILE, QUIET)


def questions(given: Given) -> Iterator[tuple[str, Asked]]:
    """The runs that a command line names: a launch command, or each file a run.

    Raises:
        InputError: one of them cannot be.
    """
    words = given.arguments
    if not words:
        if given.text("from") is None and given.text("config") is None:
            raise InputError("name files, or a launch command behind --", where="check")
        yield given.text("from") or given.text("config") or "", asked(given)
    elif words[0].endswith(ENDINGS):
        for word in words:
            yield word, asked(given, [word])
    else:
        yield " ".join(words), asked(given, command=words)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.engine.estimate import estimate

    out = sink(given)
    found = [(name, question, judged(question.noted(estimate(question.run)), given)) for name, question in questions(given)]
    if len(found) == 1:
        _, question, answer = found[0]
        text = written(answer, out, explain=False, ranks=False)
        out.write(with_inputs(text, question, out) if given.on("explain-inputs") else text)
        return status(answer, given)
    from memcalc.report import check as report
    from memcalc.report.style import Style

    rows = sorted((Checked(name, answer) for name, _, answer in found), key=report.sort_key)
    origins = {name: [row._asdict() for row in inputs_of(question)] for name, question, _ in found}
    texts = {
        "table": lambda: report.text(rows, Style(out.width, out.colour)),
        "json": lambda: report.as_json(rows, inputs=origins if given.on("explain-inputs") else None),
        "markdown": lambda: report.markdown(rows),
        "csv": lambda: report.comma_separated(rows),
    }
    out.write(texts[out.format]())
    return max(status(answer, given) for _, _, answer in found)


COMMAND = Command(
    run,
    "Will it fit: a launch command, or files of any framework, a row each.",
    (Argument("FILE", "run files and files of other frameworks, each a run; or a launch command behind --", many=True),),
    options,
    example=(
        "memcalc check --gpu h100-80g -- torchrun --nproc_per_node 8 train.py --bf16 --deepspeed ds.json",
        "memcalc check runs/*.yaml --limit 75GiB",
    ),
)
