"""``memcalc models``: the catalogue, and what one model is made of."""

from __future__ import annotations

from typing import Any

from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.output import OUT_FILE, Sink, format_option, sink
from memcalc.errors import InputError

HEAD = ("name", "model_type", "params", "hub_ids")


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (format_option("table", "json", "markdown", "csv"), Option("depth", "levels of the parameter tree", metavar="N", default="3"), OUT_FILE)


def run(given: Given) -> int:
    """Do it."""
    out = sink(given)
    words = given.arguments
    out.write(_show(given, out) if words[:1] == ("show",) else _list(" ".join(words), out))
    return 0


def _list(text: str, out: Sink) -> str:
    from memcalc.models.catalogue import entries
    from memcalc.report.model import listing
    from memcalc.report.style import Style

    rows = [[entry.name, entry.model_type, entry.params, list(entry.hub_ids)] for entry in entries(text)]
    if not rows:
        raise InputError(f"no model of the catalogue holds {text!r}; `memcalc models` lists all")
    return listing(HEAD, rows, form=out.format, style=Style(out.width, out.colour), numbers=(2,))


def _show(given: Given, out: Sink) -> str:
    import json

    from memcalc.report.model import as_dict, described, listing, tree_rows
    from memcalc.report.style import Style
    from memcalc.whatif.describe import describe

    if len(given.arguments) != 2:
        raise InputError("one model is shown at a time: memcalc models show NAME", where="models show")
    found = describe(given.arguments[1])
    depth = _depth(given)
    style = Style(out.width, out.colour)
    if out.format == "json":
        return json.dumps(as_dict(found), indent=1, ensure_ascii=False)
    if out.format == "table":
        return described(found, style, depth=depth)
    rows: list[list[Any]] = [[part.path or "all", part.num_params, list(part.shape)] for _, part in tree_rows(found.tree, depth)]
    return listing(("path", "params", "shape"), rows, form=out.format, style=style)


def _depth(given: Given) -> int:
    text = given.text("depth") or "3"
    if not text.isdigit() or not 0 < int(text) < 100:
        raise InputError(f"{text!r} is not a number of levels; accepted: a whole number from 1 to 99", where="--depth")
    return int(text)


COMMAND = Command(
    run,
    "The models that are known by name, and what one is made of: `models [TEXT]`, `models show NAME`.",
    (Argument("[TEXT…] | show NAME", "words that names, types or Hub ids must hold; or show and a name, a path or a Hub id", many=True),),
    options,
    example=("memcalc models qwen3", "memcalc models show llama-7b"),
)
