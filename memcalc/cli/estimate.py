"""``memcalc estimate``: what a job needs, on every rank, at every instant of its step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import EXPLAIN_INPUTS, FROM, Asked, asked
from memcalc.cli.shell.output import OUT_FILE, QUIET, Sink, format_option, sink
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.cli.shell.tools import FOR_TOOLS, Case, file_of, for_tools
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.units import parse_bytes

if TYPE_CHECKING:
    from memcalc.report.inputs import Input

LIMIT = Option("limit", "exit 1 when the most loaded card needs more than this (75GiB, 80GB)", metavar="SIZE", group="Verdict")
MARGIN = Option(
    "margin",
    "share of the card that should stay free; less is called tight, and exits 1 when this flag is given",
    metavar="SHARE",
    group="Verdict",
    default="5%",
)
CALIBRATION = Option(
    "calibration", "a file that memcalc.watch wrote: context, libraries and fragmentation as measured, not by rule", metavar="FILE", group="Verdict"
)


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (
        *run_options(),
        FROM,
        LIMIT,
        MARGIN,
        CALIBRATION,
        format_option("table", "json", "markdown", "csv", *FOR_TOOLS),
        Option("explain", "add each term's formula with its numbers put in, and its source"),
        Option("ranks", "every kind of rank, not only the most loaded"),
        EXPLAIN_INPUTS,
        OUT_FILE,
        QUIET,
    )


def judged(estimate: Estimate, given: Given) -> Estimate:
    """The estimate with what was measured, held against the limit and margin of a command line."""
    measured = given.text("calibration")
    if measured is not None:
        from memcalc.whatif.calibration import calibrated, read_calibration

        estimate = calibrated(estimate, read_calibration(measured))
    limit, margin = given.text("limit"), given.text("margin")
    if limit is None and margin is None:
        return estimate
    from memcalc.whatif.limit import held_against, parse_margin

    return held_against(
        estimate,
        limit_bytes=None if limit is None else parse_bytes(limit, where="--limit"),
        margin=None if margin is None else parse_margin(margin, where="--margin"),
    )


def status(estimate: Estimate, given: Given) -> int:
    """The exit status of an answer."""
    verdict = estimate.verdict
    broken = verdict is not None and (not verdict.fits or (verdict.tight and given.text("margin") is not None))
    return DOES_NOT_FIT if broken else FITS


def run(given: Given) -> int:
    """Do it."""
    from memcalc.engine.estimate import estimate

    out = sink(given)
    if out.format in FOR_TOOLS:
        return _annotated(given, out)
    question = asked(given, given.arguments)
    answer = judged(question.noted(estimate(question.run)), given)
    text = written(answer, out, explain=given.on("explain"), ranks=given.on("ranks"))
    out.write(with_inputs(text, question, out) if given.on("explain-inputs") else text)
    return status(answer, given)


def _annotated(given: Given, out: Sink) -> int:
    """The answer, or the refusal, as findings."""
    from memcalc.engine.estimate import estimate

    name, margin_counts = file_of(given), given.text("margin") is not None
    try:
        question = asked(given, given.arguments)
        answer = judged(question.noted(estimate(question.run)), given)
    except InputError as error:
        out.write(for_tools([Case(name, None, None, error)], out.format, margin_counts=margin_counts))
        raise
    out.write(for_tools([Case(name, question, answer)], out.format, margin_counts=margin_counts))
    return status(answer, given)


def written(answer: Estimate, out: Sink, *, explain: bool, ranks: bool) -> str:
    """The answer in the format that was asked for."""
    if out.format == "json":
        from memcalc.report.contract import as_json

        return as_json(answer, ranks=ranks)
    if out.format == "markdown":
        from memcalc.report.tables import markdown

        return markdown(answer, explain=explain, ranks=ranks)
    if out.format == "csv":
        from memcalc.report.tables import comma_separated

        return comma_separated(answer, ranks=ranks)
    from memcalc.report.style import Style
    from memcalc.report.text import last_line, text

    style = Style(out.width, out.colour)
    return last_line(answer, style) if out.quiet else text(answer, style, explain=explain, ranks=ranks)


def with_inputs(text: str, question: Asked, out: Sink) -> str:
    """An answer with where each key of the run comes from."""
    from memcalc.report import inputs

    return inputs.added(text, inputs_of(question), format_name=out.format)


def inputs_of(question: Asked) -> tuple[Input, ...]:
    """Where each key of a run comes from."""
    from memcalc.report.inputs import rows_of

    return rows_of(question.run, question.imported.origins if question.imported else (), question.places)


COMMAND = Command(
    run,
    "What a job needs, on every rank, at every instant of its step.",
    (MODEL._replace(many=True),),
    options,
    example=(
        "memcalc estimate llama-7b --tp 2 --zero 2 --gpus 4 --gpu a100-80g",
        "memcalc estimate --config run.yaml --format json",
        "memcalc estimate llama-3-8b --from ds_config.json --from accelerate.yaml --gpus 8",
    ),
    launches=True,
)
