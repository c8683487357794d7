"""``memcalc check``: launch commands and files, a row each, before they are launched."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from glob import has_magic
from typing import NamedTuple

from memcalc.cli.estimate import LIMIT, MARGIN, inputs_of, judged, status, with_inputs, written
from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.errors import FAILED, say
from memcalc.cli.shell.files import ENDINGS, EXPLAIN_INPUTS, FROM, Asked, asked
from memcalc.cli.shell.output import OUT_FILE, QUIET, format_option, sink
from memcalc.cli.shell.runs import run_options
from memcalc.cli.shell.tools import FOR_TOOLS, Case, for_tools
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.report.check import Checked


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (*run_options(), FROM, LIMIT, MARGIN, format_option("table", "json", "markdown", "csv", *FOR_TOOLS), EXPLAIN_INPUTS, OUT_FILE, QUIET)


class Question(NamedTuple):
    """One run, or why it cannot be.

    Attributes:
        name: as typed.
        asked: the run.
        refused: the error in its place.
    """

    name: str
    asked: Asked | None
    refused: InputError | None = None


def questions(given: Given) -> Iterator[Question]:
    """The runs that a command line names: a launch command, or each file a run.

    Raises:
        InputError: nothing is named, or a pattern that nothing matches.
    """
    words = given.arguments
    if given.launch:
        yield _question(" ".join(given.launch), given, words)
    elif not words:
        if given.text("from") is None and given.text("config") is None:
            raise InputError("name files, or a launch command behind --", where="check")
        yield _question(given.text("from") or given.text("config") or "", given)
    elif words[0].endswith(ENDINGS) or has_magic(words[0]):
        for word in expanded(words):
            yield _question(word, given, [word])
    elif len(words) == 1 and not _may_be_program(words[0]):
        raise InputError(f"is neither a file of a run ({', '.join(ENDINGS)}) nor a launch command; a model goes to memcalc estimate", where=words[0])
    else:
        yield _question(" ".join(words), given, command=words)


def expanded(words: Sequence[str]) -> Iterator[str]:
    """Words with the patterns among them as the files that they match, sorted; for shells that leave them as they are, and ``**``.

    Raises:
        InputError: a pattern that nothing matches.
    """
    from glob import glob

    for word in words:
        if not has_magic(word) or os.path.exists(word):  # noqa: PTH110
            yield word
            continue
        found = sorted(glob(word, recursive=True))  # noqa: PTH207 (a pattern may be absolute)
        if not found:
            raise InputError("no file matches this pattern", where=word)
        yield from found


def _question(name: str, given: Given, words: Sequence[str] = (), *, command: Sequence[str] = ()) -> Question:
    try:
        return Question(name, asked(given, words, command=command))
    except InputError as error:
        return Question(name, None, error)


def answers(given: Given) -> Iterator[tuple[Question, Estimate | None]]:
    """Each run with its estimate."""
    from memcalc.engine.estimate import estimate

    for question in questions(given):
        if question.asked is None:
            yield question, None
            continue
        try:
            yield question, judged(question.asked.noted(estimate(question.asked.run)), given)
        except InputError as error:
            yield question._replace(refused=error), None


def tell_refusals(found: Iterable[tuple[Question, Estimate | None]]) -> None:
    """Say on stderr why runs were refused, each with its file."""
    for question, _ in found:
        if question.refused is not None:
            told = question.name in str(question.refused) or not question.name.endswith(ENDINGS)
            say(question.refused if told else InputError(str(question.refused), where=question.name))


def _may_be_program(word: str) -> bool:
    return "=" in word or " " in word or (os.access(word, os.X_OK) and not os.path.isdir(word))  # noqa: PTH112 (answers False where pathlib raises)


def run(given: Given) -> int:
    """Do it."""
    out = sink(given)
    found = list(answers(given))
    worst = max(FAILED if answer is None else status(answer, given) for _, answer in found)
    if out.format in FOR_TOOLS:
        tell_refusals(found)
        cases = [Case(one.name, one.asked, answer, one.refused) for one, answer in found]
        out.write(for_tools(cases, out.format, margin_counts=given.text("margin") is not None))
        return worst
    if len(found) == 1:
        question, answer = found[0]
        if question.refused is not None:
            raise question.refused
        assert question.asked is not None
        assert answer is not None
        text = written(answer, out, explain=False, ranks=False)
        out.write(with_inputs(text, question.asked, out) if given.on("explain-inputs") else text)
        return worst
    tell_refusals(found)
    from memcalc.report import check as report
    from memcalc.report.style import Style

    rows = sorted((Checked(one.name, answer, str(one.refused or "")) for one, answer in found), key=report.sort_key)
    origins = {one.name: [row._asdict() for row in inputs_of(one.asked)] for one, _ in found if one.asked is not None}
    texts = {
        "table": lambda: report.text(rows, Style(out.width, out.colour)),
        "json": lambda: report.as_json(rows, inputs=origins if given.on("explain-inputs") else None),
        "markdown": lambda: report.markdown(rows),
        "csv": lambda: report.comma_separated(rows),
    }
    out.write(texts[out.format]())
    return worst


COMMAND = Command(
    run,
    "Will it fit: a launch command, or files of any framework, a row each.",
    (Argument("FILE", "run files and files of other frameworks, each a run; or a launch command behind --", many=True),),
    options,
    example=(
        "memcalc check --gpu h100-80g -- torchrun --nproc_per_node 8 train.py --bf16 --deepspeed ds.json",
        "memcalc check runs/*.yaml --limit 75GiB",
        "memcalc check runs/*.yaml --format github",
    ),
    launches=True,
)
