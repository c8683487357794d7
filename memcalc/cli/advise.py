"""``memcalc advise``: what to change in a run that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcalc.cli.estimate import LIMIT, MARGIN
from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, format_option, sink
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.errors import InputError
from memcalc.units import parse_bytes

if TYPE_CHECKING:
    from memcalc.specs.run import Run


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    margin = MARGIN._replace(help="share of the card that must stay free", default="0%")
    return (*run_options(), FROM, LIMIT, margin, format_option("table", "json", "markdown", "csv"), OUT_FILE)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.engine.resolve import SERVERS
    from memcalc.whatif.advise import advise
    from memcalc.whatif.limit import parse_margin

    limit, margin, wanted = given.text("limit"), given.text("margin"), asked(given, given.arguments).run
    if wanted.code in SERVERS:
        return advised(given, wanted)
    found = advise(
        wanted,
        limit_bytes=None if limit is None else parse_bytes(limit, where="--limit"),
        margin=0.0 if margin is None else parse_margin(margin, where="--margin"),
    )
    out = sink(given)
    from memcalc.report import advise as report

    out.report(found, report)
    return FITS if found.fits else DOES_NOT_FIT


def advised(given: Given, served: Run) -> int:
    """The same for a server, which takes a share of its card.

    Raises:
        InputError: a limit or margin is given.
    """
    from memcalc.report import serving_advice as report
    from memcalc.whatif.serving_advice import advise_server

    for name in ("limit", "margin"):
        if given.text(name) is not None:
            raise InputError("a server takes a share of its card, which its own keys say: leave it out", where=f"--{name}")
    found, out = advise_server(served), sink(given)
    out.report(found, report)
    return FITS if found.fits else DOES_NOT_FIT


COMMAND = Command(
    run,
    "What to change in a run that does not fit: each rung of the ladder with what it saves and costs, and the shortest sequence that fits.",
    (MODEL._replace(many=True),),
    options,
    example=("memcalc advise llama-3.1-8b --gpus 8 --gpu rtx4090-24g", "memcalc advise run.yaml --margin 5%"),
    launches=True,
)
