"""The command line: one file a command. `main` is its entry point."""

from __future__ import annotations

import gc
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
    if argv is not None:
        return _answered(list(argv))
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # pydantic reads every installed distribution in search of some
    gc.set_threshold(100_000)  # a process of a tenth of a second makes little garbage
    try:
        return _answered(sys.argv[1:])
    finally:
        gc.freeze()  # nor need what it made be searched for garbage at its end; both together are a fifth of its time


def _answered(argv: list[str]) -> int:
    from memcalc.cli.shell import errors

    try:
        return _run(argv)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (the one place where every exception ends)
        return errors.say(error)


def _run(argv: list[str]) -> int:
    from memcalc.cli.shell import registry
    from memcalc.cli.shell.parse import parse

    if COMPLETE in os.environ or argv[:1] in ([word] for word in COMPLETION):
        from memcalc.cli.shell.completion import complete

        return complete(argv)
    name, *rest = argv or HELP
    if name in HELP or (name == "help" and not rest):
        return _show(None)
    if name == "help":
        return _show(rest[0])
    if name in VERSION:
        from memcalc import __version__

        print(f"memcalc {__version__}")
        return 0
    command = registry.load(name)
    if any(word in HELP for word in (rest[: rest.index("--")] if "--" in rest else rest)):
        return _show(name)
    return command.run(parse(command, name, rest))


def _show(name: str | None) -> int:
    from memcalc.cli.shell import registry
    from memcalc.cli.shell.command import Given
    from memcalc.cli.shell.help import command_help, top_help
    from memcalc.cli.shell.output import sink
    from memcalc.report.style import Style

    out = sink(Given((), {}))
    style = Style(out.width, out.colour)
    out.write(top_help(style) if name is None else command_help(name, registry.load(name), style))
    return 0


__all__ = ["main"]
