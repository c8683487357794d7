"""``memcalc export``: a run as a file or flags of another framework."""

from __future__ import annotations

import sys

from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, sink
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.errors import InputError


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    from memcalc.importers.export import exporters

    to = Option("to", "the format", metavar="FORMAT", choices=exporters())
    return (*run_options(), FROM, to, OUT_FILE)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.importers.export import exporters
    from memcalc.whatif.written import written

    wanted = given.text("to")
    if wanted is None:
        raise InputError(f"needs a format; accepted: {', '.join(exporters())}", where="--to")
    found = written(asked(given, given.arguments).run, wanted)
    sink(given).write(found.text)
    if found.beside:
        print(f"memcalc: {wanted} has no words for {', '.join(found.beside)}: say them beside it", file=sys.stderr)
    return 0


COMMAND = Command(
    run,
    "A run as a file or flags of another framework.",
    (MODEL._replace(many=True),),
    options,
    example=("memcalc export run.yaml --to deepspeed", "memcalc export llama-3-8b --engine fsdp2 --gpus 8 --to accelerate -o accelerate.yaml"),
    launches=True,
)
