"""``memcalc gpus``: the cards that are known by name, and what they really offer."""

from __future__ import annotations

from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.output import OUT_FILE, format_option, sink
from memcalc.errors import InputError

HEAD = ("name", "sold as GB", "torch sees GiB", "nvidia-smi MiB", "also", "note")
KEYS = ("name", "nominal_gb", "capacity_bytes", "most_bytes", "smi_mib", "aliases", "note", "rough")


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    return (format_option("table", "json", "markdown", "csv"), OUT_FILE)


def run(given: Given) -> int:
    """Do it."""
    from memcalc.report.model import card_row, listing
    from memcalc.report.model import cards as table
    from memcalc.report.style import Style
    from memcalc.specs.gpus import gpus

    words = " ".join(given.arguments).lower().split()
    cards = [card for card in gpus().values() if all(word in " ".join((card.name, *card.aliases, card.note)).lower() for word in words)]
    if not cards:
        raise InputError(f"no card holds {' '.join(words)!r}; `memcalc gpus` lists all")
    out = sink(given)
    style = Style(out.width, out.colour)
    if out.format == "json":
        out.write(listing(KEYS, [[getattr(card, key) for key in KEYS] for card in cards], form="json", style=style))
        return 0
    if out.format == "table":
        out.write(table(cards, style))
    else:
        out.write(listing(HEAD, [card_row(card) for card in cards], form=out.format, style=style, numbers=(1, 2, 3)))
    return 0


COMMAND = Command(
    run,
    "The cards that are known by name, and the memory that they really offer.",
    (Argument("[TEXT…]", "words that a name or note must hold", many=True),),
    options,
    example=("memcalc gpus h100",),
)
