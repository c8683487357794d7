"""Help, from the commands' declarations: every flag in full at any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memcalc.cli.shell import registry
from memcalc.cli.shell.command import Argument, Command, Option
from memcalc.report.style import BOLD, CYAN, DIM, Style, pad, wrap

ABOUT = "Will this job fit, on every rank, at every instant of its step? GPU memory of training and inference, before launch."
EXIT = "Exit status: 0 it fits, or no card was named; 1 it does not fit; 2 bad input."
HELP = Option("help", "show this", short="h", group="Other")
TOP = (
    HELP,
    Option("version", "show the version", short="V"),
    Option("install-completion", "complete commands and flags in this shell from now on"),
    Option("show-completion", "show the lines that would do so"),
)
INDENT, COLUMN = 2, 30


def top_help(style: Style) -> str:
    """All commands."""
    commands = [(name, registry.load(name).help) for name in registry.names()]
    lines = [f"{style.paint('Usage:', BOLD)} memcalc COMMAND …", "", wrap(ABOUT, style.width), "", style.paint("Commands", BOLD)]
    lines += _entries([(name, text) for name, text in commands], style)
    lines += ["", style.paint("Options", BOLD), *_entries([(_spelling(option), option.help) for option in TOP], style)]
    lines += ["", wrap("`memcalc COMMAND --help` shows a command's arguments and flags.", style.width), wrap(EXIT, style.width)]
    return "\n".join(lines)


def command_help(name: str, command: Command, style: Style) -> str:
    """One command: its arguments, and its flags by group."""
    usage = " ".join(["memcalc", name, *map(_usage, command.arguments), "[FLAGS]"])
    lines = [f"{style.paint('Usage:', BOLD)} {usage}", "", wrap(command.help, style.width)]
    if command.example:
        lines += ["", *(f"  {style.paint('$', DIM)} {line}" for line in command.example)]
    if command.arguments:
        lines += ["", style.paint("Arguments", BOLD), *_entries([(argument.name, argument.help) for argument in command.arguments], style)]
    for group, options in _groups((*command.options(), HELP)).items():
        lines += ["", style.paint(group, BOLD), *_entries([(_spelling(option), _said(option)) for option in options], style)]
    return "\n".join([*lines, "", wrap(EXIT, style.width)])


def _usage(argument: Argument) -> str:
    name = f"{argument.name}…" if argument.many and "…" not in argument.name else argument.name
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _groups(options: Sequence[Option]) -> dict[str, list[Option]]:
    found: dict[str, list[Option]] = {}
    for option in options:
        found.setdefault(option.group, []).append(option)
    return found


def _spelling(option: Option) -> str:
    short = f"-{option.short}, " if option.short else ""
    return f"{short}--{option.name}{f' {option.metavar}' if option.metavar else ''}"


def _said(option: Option) -> str:
    parts = [option.help]
    if option.choices:
        parts.append(f"one of {', '.join(option.choices)}")
    if option.aliases:
        parts.append(f"also {', '.join(f'--{alias}' for alias in option.aliases)}")
    if option.negatable:
        parts.append(f"--no-{option.name} for off")
    return "; ".join(parts) + (f" (default {option.default})" if option.default else "")


def _entries(entries: Sequence[tuple[str, str]], style: Style) -> Iterator[str]:
    """Names and what they are: side by side, or below where the name is long."""
    for name, text in entries:
        wrapped = wrap(text, max(style.width, COLUMN + 20), indent=" " * COLUMN)
        if len(name) + INDENT + 2 <= COLUMN:
            yield f"{' ' * INDENT}{style.paint(pad(name, COLUMN - INDENT), CYAN)}{wrapped}"
        else:
            yield f"{' ' * INDENT}{style.paint(name, CYAN)}"
            yield f"{' ' * COLUMN}{wrapped}"
