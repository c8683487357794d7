"""Command: what a file in `memcalc.cli` declares. Plain data: parsing, help and completion are made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Option(NamedTuple):
    """A flag.

    Attributes:
        name: without dashes.
        help: one phrase.
        metavar: what its value is called in help; empty for a switch.
        short: one letter that stands for it.
        aliases: other names, without dashes.
        choices: the values of a closed list.
        negatable: a switch that ``--no-…`` turns off.
        repeatable: given several times, its values add up, separated by commas.
        group: the heading in help that it stands under.
        default: as help shows it.
    """

    name: str
    help: str
    metavar: str = ""
    short: str = ""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    negatable: bool = False
    repeatable: bool = False
    group: str = "Output"
    default: str = ""

    @property
    def is_switch(self) -> bool:
        """It takes no value."""
        return not self.metavar


class Argument(NamedTuple):
    """What stands without a flag.

    Attributes:
        name: in help, in capitals.
        help: one phrase.
        required: it must be given.
        many: it takes all that remain.
    """

    name: str
    help: str
    required: bool = False
    many: bool = False


class Given(NamedTuple):
    """A parsed command line.

    Attributes:
        arguments: in their order.
        flags: text, or true and false for switches, by the option's own name; those that were given.
        name: the command's.
        launch: a launch command behind ``--``.
    """

    arguments: tuple[str, ...]
    flags: Mapping[str, str | bool]
    name: str = ""
    launch: tuple[str, ...] = ()

    def text(self, name: str) -> str | None:
        """The value of a flag that takes one."""
        value = self.flags.get(name)
        return value if isinstance(value, str) else None

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.flags.get(name) is True


class Command(NamedTuple):
    """One command.

    Attributes:
        run: does it, and returns the exit status.
        help: what it answers; the first line stands in the list of commands.
        arguments: in their order.
        options: makes the flags; called only when they are needed.
        example: lines that show its use.
        launches: it takes a launch command behind ``--`` for a run.
    """

    run: Callable[[Given], int]
    help: str
    arguments: tuple[Argument, ...] = ()
    options: Callable[[], tuple[Option, ...]] = tuple
    example: tuple[str, ...] = ()
    launches: bool = False
