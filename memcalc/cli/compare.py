"""``memcalc compare``: two or more runs side by side, term by term."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.cli.estimate import LIMIT, MARGIN, judged, status
from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.files import FROM, asked, told
from memcalc.cli.shell.output import OUT_FILE, format_option, sink
from memcalc.cli.shell.runs import run_options
from memcalc.errors import InputError
from memcalc.specs.read import key_layer, merged
from memcalc.specs.run import Run


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (*run_options(), FROM, LIMIT, MARGIN, format_option("table", "json", "markdown", "csv"), OUT_FILE)


def runs_of(given: Given) -> Iterator[tuple[str, Run]]:
    """The runs that a command line names: variants of the first argument, or each argument a run of its own.

    Raises:
        InputError: one of them cannot be.
    """
    variants = [word for word in given.arguments if "=" in word]
    bases = [word for word in given.arguments if "=" not in word]
    if not variants:
        for base in bases:
            yield base, asked(given, [base]).run
        return
    from memcalc.whatif.compare import variant

    for base in bases or [""]:
        layers, _ = told(given, [base] if base else [])
        for word in variants:
            yield (f"{base} {word}" if len(bases) > 1 else word), merged([*layers, key_layer(variant(word))])


def run(given: Given) -> int:
    """Do it."""
    from memcalc.engine.estimate import estimate
    from memcalc.whatif.compare import compared

    runs: dict[str, Run] = {}
    for name, one in runs_of(given):
        if name in runs:
            raise InputError(f"{name!r} is named twice, and would be held against itself", where="compare")
        runs[name] = one
    found = compared({name: judged(estimate(one), given) for name, one in runs.items()})
    out = sink(given)
    from memcalc.report import compare as report

    out.report(found, report)
    return max(status(answer, given) for answer in found.estimates)


COMMAND = Command(
    run,
    "Two or more runs side by side, term by term: what moved, and why.",
    (Argument("RUN", "models or run files; or one of them, and variants of it such as zero=3,gpus=4", many=True),),
    options,
    example=('memcalc compare llama-13b --gpu v100-32g "zero=3,gpus=4" "tp=2,zero=2,gpus=2" "tp=2,zero=2,gpus=4"', "memcalc compare before.yaml after.yaml"),
    launches=True,
)
