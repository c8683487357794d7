"""``memcalc stress``: what a run that fits may still die of."""

from __future__ import annotations

from memcalc.cli.estimate import LIMIT, MARGIN
from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, QUIET, format_option, sink
from memcalc.cli.shell.progress import Progress
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.errors import InputError
from memcalc.units import parse_bytes

ONLY = Option(
    "only",
    "incidents, or groups of them (data, attention, checkpoint, …); exit 1 where one does not survive",
    metavar="NAMES",
    repeatable=True,
    group="Incidents",
)
LONGEST = Option("longest", "tokens of the longest sample that may come", metavar="N", group="Incidents", default="twice seq_len")
SAMPLES = Option("eval-samples", "sequences of an evaluation that keeps their logits", metavar="N", group="Incidents", default="1000")


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    margin = MARGIN._replace(help="share of the card that must stay free", default="0%")
    limit = LIMIT._replace(help="the card's capacity is at most this (75GiB, 80GB)")
    return (*run_options(), FROM, ONLY, LONGEST, SAMPLES, limit, margin, format_option("table", "json", "markdown", "csv"), OUT_FILE, QUIET)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.whatif.limit import parse_margin
    from memcalc.whatif.stress import names, stress

    only = (given.text("only") or "").split(",")
    limit, margin = given.text("limit"), given.text("margin")
    progress = Progress(len(names(only)), what="incidents", quiet=given.on("quiet"))
    found = stress(
        asked(given, given.arguments).run,
        only=only,
        limit_bytes=None if limit is None else parse_bytes(limit, where="--limit"),
        margin=0.0 if margin is None else parse_margin(margin, where="--margin"),
        longest=count(given, "longest"),
        samples=count(given, "eval-samples"),
        done=progress,
    )
    progress.end()
    out = sink(given)
    from memcalc.report import stress as report
    from memcalc.report.style import Style

    written = {
        "table": lambda: report.conclusion(found) if out.quiet else report.text(found, Style(out.width, out.colour)),
        "json": lambda: report.as_json(found),
        "markdown": lambda: report.markdown(found),
        "csv": lambda: report.comma_separated(found),
    }
    out.write(written[out.format]())
    return FITS if found.survives else DOES_NOT_FIT


def count(given: Given, name: str) -> int | None:
    """A flag that counts something.

    Raises:
        InputError: it is no whole number from 1.
    """
    text = given.text(name)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise InputError(f"{text!r} is not a whole number from 1", where=f"--{name}")
    return int(text)


COMMAND = Command(
    run,
    "What a run that fits may still die of: a long sample, a checkpoint, an evaluation, an overflow, a hot expert, …; exit 1 where it does not survive one.",
    (MODEL._replace(many=True),),
    options,
    example=("memcalc stress llama-13b --zero 3 --gpus 4 --gpu v100-32g --offload-optimizer cpu --recompute full", "memcalc stress run.yaml --only checkpoint"),
)
