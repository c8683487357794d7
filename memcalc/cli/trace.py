"""``memcalc trace``: the same run on the model's real code, without data or GPU, beside the estimate."""

from __future__ import annotations

from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, format_option, sink
from memcalc.cli.shell.runs import MODEL, run_options


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (*run_options(), FROM, format_option("table", "json"), OUT_FILE)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.whatif.trace import agreement, require_torch

    job = asked(given, given.arguments).run
    require_torch()
    found = agreement(job)
    out = sink(given)
    from memcalc.report import trace as report
    from memcalc.report.style import Style

    out.write(report.as_json(found) if out.format == "json" else report.text(found, Style(out.width, out.colour)))
    return 0


COMMAND = Command(
    run,
    "The same run traced on the model's real code, without data or GPU, beside the estimate. Needs the extra: pip install 'gpu-memcalc[trace]'.",
    (MODEL._replace(many=True),),
    options,
    example=("memcalc trace llama-3.2-1b --seq-len 1024",),
    launches=True,
)
