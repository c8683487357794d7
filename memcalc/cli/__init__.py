"""The command line: one file a command. `main` is its entry point."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

COMPLETE = "_MEMCALC_COMPLETE"
"""Set by a shell that asks for completions; typer answers."""

HELP, VERSION = ("--help", "-h"), ("--version", "-V")
COMPLETION = ("--install-completion", "--show-completion")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: words after the program's name; by default those of this process.

    Returns:
        0 it fits, or no card was named; 1 it does not fit; 2 bad input, said in one line on stderr.
    """
    from memcalc.cli.shell import errors

    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the one place where every exception ends)
        return errors.say(error)


def _run(argv: list[str]) -> int:
    from memcalc.cli.shell import registry
    from memcalc.cli.shell.parse import parse

    if COMPLETE in os.environ or not argv or argv[0] in (*HELP, *COMPLETION):
        from memcalc.cli.shell.help import show_help

        return show_help(argv or ["--help"])
    name, *rest = argv
    if name in VERSION:
        from memcalc import __version__

        print(f"memcalc {__version__}")
        return 0
    command = registry.load(name)
    before_arguments = rest[: rest.index("--")] if "--" in rest else rest
    if any(word in HELP for word in before_arguments):
        from memcalc.cli.shell.help import show_help

        return show_help([name, "--help"])
    return command.run(parse(command, name, rest))


__all__ = ["main"]
