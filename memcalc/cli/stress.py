"""``memcalc stress``: what a run that fits may still die of."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from memcalc.cli.estimate import LIMIT, MARGIN
from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, QUIET, format_option, sink
from memcalc.cli.shell.progress import Progress
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.errors import InputError
from memcalc.units import parse_bytes

if TYPE_CHECKING:
    from memcalc.specs.run import Run
    from memcalc.whatif.lengths import Spread

ONLY = Option(
    "only",
    "incidents by the answer's names, or groups of them: data, attention, precision, loss, checkpoint, evaluation, logging, experts, schedule, allocator",
    metavar="NAMES",
    repeatable=True,
    group="Incidents",
)
LONGEST = Option(
    "longest",
    "tokens of the longest sample that may come; with --lengths also a quantile: p99, p99.9, max",
    metavar="N",
    group="Incidents",
    default="twice seq_len",
)
SAMPLES = Option("eval-samples", "sequences of an evaluation that keeps their logits", metavar="N", group="Incidents", default="1000")
LENGTHS = (
    Option(
        "lengths",
        "lengths of the data: a file (one a line, csv, jsonl, or quantiles such as p99: 4096), p50=512,p99=4096,max=8192, or a shape: "
        "lognormal:median=600,sigma=1.1,max=8192, exponential, uniform, pareto",
        metavar="FILE",
        group="Data",
    ),
    Option("lengths-column", "column of a csv or jsonl file that holds lengths, or lists of tokens", metavar="NAME", group="Data"),
    Option("sampler", "which samples meet in a batch", metavar="NAME", choices=("random", "length-grouped", "token-budget"), group="Data", default="random"),
    Option("token-budget", "tokens of a batch under --sampler token-budget", metavar="N", group="Data", default="micro_batch × seq_len"),
    Option("epoch-samples", "samples of an epoch, where quantiles or a shape are given", metavar="N", group="Data", default="100000"),
)
OWN = frozenset(option.name for option in LENGTHS)
"""Flags that mean here what they say above, and are no keys of the run."""


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    margin = MARGIN._replace(help="share of the card that must stay free", default="0%")
    limit = LIMIT._replace(help="the card's capacity is at most this (75GiB, 80GB)")
    of_run = (option for option in run_options() if option.name not in OWN)
    return (*of_run, FROM, ONLY, LONGEST, SAMPLES, *LENGTHS, limit, margin, format_option("table", "json", "markdown", "csv"), OUT_FILE, QUIET)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.whatif.limit import parse_margin
    from memcalc.whatif.stress import names, stress

    only = (given.text("only") or "").split(",")
    limit, margin = given.text("limit"), given.text("margin")
    limit_bytes = None if limit is None else parse_bytes(limit, where="--limit")
    share = 0.0 if margin is None else parse_margin(margin, where="--margin")
    chosen = names(only)
    job = asked(given._replace(flags={name: value for name, value in given.flags.items() if name not in OWN}), given.arguments).run
    wide = over_lengths(given, job, limit_bytes=limit_bytes, margin=share)
    progress = Progress(len(chosen), what="incidents", quiet=given.on("quiet"))
    found = stress(
        job,
        only=only,
        limit_bytes=limit_bytes,
        margin=share,
        longest=longest(given, wide),
        samples=count(given, "eval-samples"),
        spread=wide,
        done=progress,
    )
    progress.end()
    out = sink(given)
    from memcalc.report import stress as report

    if out.format == "table" and out.quiet:
        out.write(report.conclusion(found))
    else:
        out.report(found, report)
    return FITS if found.survives else DOES_NOT_FIT


def over_lengths(given: Given, job: Run, *, limit_bytes: int | None, margin: float) -> Spread | None:
    """What the lengths of the data make of the run, where they are given."""
    source = given.text("lengths")
    if source is None:
        return None
    from memcalc.whatif.lengths import spread
    from memcalc.whatif.lengths.read import lengths_of

    size = os.path.getsize(source) if os.path.isfile(source) else 0  # noqa: PTH113, PTH202 (answer where pathlib raises)
    progress = Progress(size, what="bytes", quiet=given.on("quiet"))
    found = lengths_of(source, column=given.text("lengths-column"), num_samples=count(given, "epoch-samples"), done=progress)
    progress.end()
    sampler = given.text("sampler") or "random"
    return spread(job, found, sampler=sampler, budget=count(given, "token-budget"), limit_bytes=limit_bytes, margin=margin)


def longest(given: Given, wide: Spread | None) -> int | None:
    """Tokens of the longest sample: a number, or a quantile of the lengths; by default the longest of those.

    Raises:
        InputError: neither, or a quantile of nothing.
    """
    text = given.text("longest")
    quantile = re.fullmatch(r"p([\d.]+)|max", text or ("max" if wide is not None else ""))
    if quantile is None:
        return count(given, "longest")
    if wide is None:
        raise InputError(f"{text} of what? give --lengths, or a number of tokens", where="--longest")
    return wide.found.quantile(float(quantile[1]) / 100 if quantile[1] else 1.0)


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
    launches=True,
    example=("memcalc stress llama-13b --zero 3 --gpus 4 --gpu v100-32g --offload-optimizer cpu --recompute full", "memcalc stress run.yaml --only checkpoint"),
)
