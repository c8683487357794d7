"""``memcalc sweep``: a run over lists, ranges and factors of its keys."""

from __future__ import annotations

from itertools import islice

from memcalc.cli.estimate import LIMIT, MARGIN
from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import FROM, is_foreign, told
from memcalc.cli.shell.output import OUT_FILE, Sink, format_option, sink
from memcalc.cli.shell.progress import Progress
from memcalc.cli.shell.runs import run_options
from memcalc.errors import InputError
from memcalc.units import parse_bytes

ROWS = 100
"""Rows of a table, unless told."""

OVER = Option(
    "over",
    "further keys to sweep over, switches among them: sp=true,false",
    metavar="KEY=VALUES",
    repeatable=True,
    group="Sweep",
)


def several(option: Option) -> Option:
    """A flag that takes several of its choices."""
    return option._replace(choices=(), help=f"{option.help}; one of {', '.join(option.choices)}") if option.choices else option


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (
        *map(several, run_options()),
        FROM,
        OVER,
        Option("only", "which combinations are shown", metavar="WHICH", choices=("fits", "fails", "invalid"), group="Sweep"),
        Option("sort", "peak, need or a swept key; -peak for the largest first (write --sort=-peak)", metavar="KEY", group="Sweep"),
        Option("rows", "most rows of a table", metavar="N", default=str(ROWS), group="Sweep"),
        Option("show-invalid", "say why combinations that cannot be cannot", group="Sweep"),
        LIMIT,
        MARGIN._replace(help="share of the card that must stay free", default="0%"),
        format_option("table", "json", "jsonl", "markdown", "csv"),
        OUT_FILE,
        Option("quiet", "only the last line: how many fit; no progress bar", short="q"),
    )


def run(given: Given) -> int:
    """Do it."""
    from memcalc.whatif.limit import parse_margin
    from memcalc.whatif.swept import MODEL, Axes, size, swept

    axes, fixed = _axes(given)
    foreign = [word for word in given.arguments if is_foreign(word)]
    models = [word for word in given.arguments if word not in foreign]
    every: Axes = {MODEL: models, **axes} if len(models) > 1 else axes
    layers, _ = told(given._replace(flags=fixed), [*foreign, *(models if len(models) == 1 else ())])
    limit, margin = given.text("limit"), given.text("margin")
    progress = Progress(size(every), what="combinations", quiet=given.on("quiet"))
    try:
        found = swept(
            layers,
            every,
            limit_bytes=None if limit is None else parse_bytes(limit, where="--limit"),
            margin=0.0 if margin is None else parse_margin(margin, where="--margin"),
            progress=progress,
        )
    finally:
        progress.end()
    out = sink(given)
    out.write(_written(found, out, given))
    return DOES_NOT_FIT if found.counts()["does not fit"] else FITS


def _axes(given: Given) -> tuple[dict[str, tuple[int | str, ...]], dict[str, str | bool]]:
    """What is swept, by flag, and the flags that hold for all."""
    from memcalc.specs.fields import flags
    from memcalc.whatif.axes import axis_of, split_axes
    from memcalc.whatif.compare import variant

    axes, fixed = split_axes({name: value for name, value in given.flags.items() if name in flags()})
    more = given.text("over")
    for key, value in (variant(more) if more else {}).items():
        name = key.replace("_", "-")
        node = flags().get(name)
        name = node.flag if node is not None else name
        axes[name] = axis_of(name, "true" if value is True else str(value), where=f"--over {name}")
    rest = {name: value for name, value in given.flags.items() if name not in flags()}
    return axes, {**rest, **fixed}


def _written(found: object, out: Sink, given: Given) -> str:
    from memcalc.report import sweep as report
    from memcalc.report.style import Style
    from memcalc.whatif.swept import Swept

    assert isinstance(found, Swept)
    if out.quiet:
        return report.summary(found)
    chosen = found.chosen(only=given.text("only"), sort=given.text("sort"))
    reasons = given.on("show-invalid")
    if out.format in ("table", "markdown"):
        rows = list(islice(chosen, _rows(given)))
        more = sum(1 for _ in chosen)
        if out.format == "markdown":
            return report.markdown(found, rows, more=more, reasons=reasons)
        return report.text(found, rows, Style(out.width, out.colour), more=more, reasons=reasons)
    rows = [*chosen, *(found.chosen(only="invalid") if reasons and given.text("only") is None else ())]
    if out.format == "csv":
        return report.comma_separated(found, rows)
    return report.as_json(found, rows) if out.format == "json" else report.as_json_lines(rows)


def _rows(given: Given) -> int:
    text = given.text("rows") or str(ROWS)
    if not text.isdigit() or not int(text):
        raise InputError(f"{text!r} is not a number of rows; accepted: a whole number from 1", where="--rows")
    return int(text)


COMMAND = Command(
    run,
    "A run over lists, ranges and factors of its keys: how far can I go? Exit 1 when a combination does not fit.",
    (Argument("MODEL", "a model or a run file; several models are swept over, too", many=True),),
    options,
    example=(
        "memcalc sweep llama-3.1-8b --max-seq-length 2048:131072:x2 --micro-batch 1,2,4 --gpu h100-80g",
        "memcalc sweep llama-3.1-70b --gpus 64 --tp 1,2,4,8 --zero 1,2,3 --only fits --sort peak",
    ),
    launches=True,
)
