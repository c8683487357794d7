"""``memcalc diagnose``: after a crash, what it was."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, Sink, format_option, sink
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.errors import InputError
from memcalc.specs.fields import flags

if TYPE_CHECKING:
    from memcalc.specs.run import Run
    from memcalc.whatif.diagnose import Diagnosis

LOG = Argument("LOG", "a log with an out-of-memory message, or - for stdin", required=True)
LADDER = Option("ladder", "after the diagnosis, what to change in the run so that it fits (`memcalc advise`)", negatable=True, default="on")


def options() -> tuple[Option, ...]:
    """Flags of this command; ``--run`` is ``--config``."""
    config, *others = run_options()
    config = config._replace(help="the run that wrote the log, in YAML; flags win over it", aliases=("run",))
    return (config, *others, FROM, LADDER, format_option("table", "json", "markdown"), OUT_FILE)


def run(given: Given) -> int:
    """Do it. The exit status is 1 where something ran out of memory."""
    from memcalc.whatif.diagnose import diagnose

    log, *words = given.arguments
    of_run = words or given.launch or {"config", "from", *flags()} & given.flags.keys()
    job = asked(given, words).run if of_run else None
    with opened(log) as lines:
        found = diagnose(lines, job)
    out = sink(given)
    from memcalc.report import diagnose as report
    from memcalc.report.style import Style

    if out.format == "json":
        out.write(report.as_json(found))
    else:
        style = Style(out.width, out.colour)
        parts = [report.text(found, style) if out.format == "table" else report.markdown(found)]
        parts.append(ladder(found, job, out) if given.flags.get("ladder", True) else "")
        out.write("\n\n".join(filter(None, parts)))
    return DOES_NOT_FIT if found.findings else FITS


def ladder(found: Diagnosis, job: Run | None, out: Sink) -> str:
    """What to change from here, in words: where a card ran out of memory or a server would not start, and the run and its cards are known."""
    if job is None or not any(finding.crash.message.kind in ("device", "refusal", "library") for finding in found.findings):
        return ""
    if job.hardware.gpu is None and found.limit_bytes is None:
        return ""
    from memcalc.engine.resolve import SERVERS
    from memcalc.report import advise as report
    from memcalc.report import serving_advice
    from memcalc.report.style import Style
    from memcalc.whatif.advise import advise
    from memcalc.whatif.diagnose import SHOWN
    from memcalc.whatif.serving_advice import LARGER_SHARE, advise_server

    style = Style(out.width, out.colour)
    if job.code in SERVERS:
        served = advise_server(job) if job.hardware.gpu is not None else None
        if served is not None and any(cause.name == "beside its share" for finding in found.findings for cause in finding.causes):
            served = served._replace(changes=tuple(one for one in served.changes if one.change.name != LARGER_SHARE))
        return "" if served is None else serving_advice.text(served, style) if out.format == "table" else serving_advice.markdown(served)
    at = next((f.position.name for f in found.findings if f.position is not None and f.position.name in SHOWN), "")
    advice = advise(_showing(job, SHOWN.get(at, {})), limit_bytes=found.limit_bytes)
    return report.text(advice, style) if out.format == "table" else report.markdown(advice)


def _showing(job: Run, keys: dict[str, Any]) -> Run:
    """The run with the instant in which it died, where its engine knows that."""
    from memcalc.engine.resolve import resolve
    from memcalc.specs.read import read_run

    try:
        shown = read_run(job, **keys)
        resolve(shown)
    except InputError:
        return job
    return shown


@contextmanager
def opened(path: str) -> Iterator[TextIO]:
    """A log as text, whatever bytes are in it; a progress bar's returns end its lines.

    Raises:
        InputError: it cannot be read.
    """
    if path == "-":
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        yield sys.stdin
        return
    try:
        file = open(path, encoding="utf-8", errors="replace")  # noqa: PTH123, SIM115
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=path) from None
    with file:
        yield file


COMMAND = Command(
    run,
    "After a crash: what an out-of-memory message means, which tensor it was, where in the step, and what to change.",
    (LOG, MODEL._replace(many=True)),
    options,
    launches=True,
    example=(
        "memcalc diagnose train.log",
        "memcalc diagnose train.log --run run.yaml",
        "kubectl logs pod | memcalc diagnose - llama-7b --zero 2 --dp 8 --gpu v100-32g",
    ),
)
