"""``memcalc limits``: how far a run can go on its card."""

from __future__ import annotations

from memcalc.cli.estimate import LIMIT, MARGIN
from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, format_option, sink
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.units import parse_bytes


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    margin = MARGIN._replace(help="share of the card that must stay free", default="0%")
    return (
        *run_options(),
        FROM,
        LIMIT._replace(help="the card's capacity is at most this (75GiB, 80GB)"),
        margin,
        format_option("table", "json", "markdown", "csv"),
        OUT_FILE,
    )


def run(given: Given) -> int:
    """Do it."""
    from memcalc.whatif.limit import parse_margin
    from memcalc.whatif.limits import limits

    limit, margin = given.text("limit"), given.text("margin")
    found = limits(
        asked(given, given.arguments).run,
        limit_bytes=None if limit is None else parse_bytes(limit, where="--limit"),
        margin=0.0 if margin is None else parse_margin(margin, where="--margin"),
    )
    out = sink(given)
    from memcalc.report import limits as report

    out.report(found, report)
    return FITS if all(answer.bound for answer in found.answers if answer.key in ("seq_len", "micro_batch")) else DOES_NOT_FIT


COMMAND = Command(
    run,
    "How far a run can go on its card: the longest sequence, the largest batch, tokens per batch, rank of adapters, layers kept.",
    (MODEL._replace(many=True),),
    options,
    example=("memcalc limits llama-3.1-8b --engine fsdp2 --gpus 8 --recompute full --gpu h100-80g --margin 5%",),
    launches=True,
)
