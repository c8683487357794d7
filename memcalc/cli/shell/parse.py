"""A command line to what was given. One small parser: typer's own import takes as long as the whole estimate may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memcalc.cli.shell.command import Command, Given, Option
from memcalc.errors import InputError, UnknownNameError

_MICRO_BATCH, _RECOMPUTE, _NOTHING = "write --micro-batch", "write --recompute full", "it has no effect on memory: leave it out"
ELSEWHERE = {
    **dict.fromkeys(("--batch-size", "--bs", "--per-device-train-batch-size", "--train-batch-size"), _MICRO_BATCH),
    **dict.fromkeys(("--gradient-checkpointing", "--activation-checkpointing", "--checkpointing"), _RECOMPUTE),
    **dict.fromkeys(("--learning-rate", "--lr", "--lora-alpha", "--weight-decay", "--epochs", "--num-train-epochs", "--warmup-ratio"), _NOTHING),
    **dict.fromkeys(("--gradient-accumulation-steps", "--gradient-accumulation"), "write --grad-accum"),
    **dict.fromkeys(("--max-length", "--sequence-length", "--context-length", "--cutoff-len"), "write --seq-len"),
    "--optim": "write --optimizer",
    **dict.fromkeys(("--bf16", "--fp16"), "write --dtype, or --dtype float32 with --autocast"),
}
"""Flags of other tools, and what they are here."""


def parse(command: Command, name: str, argv: Sequence[str]) -> Given:
    """What a command line gives a command.

    ``--flag value``, ``--flag=value``, ``--switch``, ``--no-switch``, ``--switch false``, ``-o value``, underscores for dashes; after ``--``
    comes a launch command where the command takes one, and elsewhere all are arguments.

    Raises:
        InputError: a flag that there is not, a value that is missing or not among its choices, one flag with two values, too many or too few arguments.
    """
    known = _by_name(command.options())
    flags: dict[str, str | bool] = {}
    arguments: list[str] = []
    launch: tuple[str, ...] = ()
    words = _joined(argv, known)
    for word in words:
        if word == "--":
            launch = tuple(words)
        elif word.startswith("-") and len(word) > 1 and not word[1].isdigit():
            option, value = _option(word, words, known)
            flags[option.name] = _together(option, word, flags.get(option.name), value)
        else:
            arguments.append(word)
    if not command.launches:
        arguments.extend(launch)
    _check_arguments(command, name, arguments)
    return Given(tuple(arguments), flags, name, launch if command.launches else ())


def _joined(argv: Sequence[str], known: dict[str, Option]) -> Iterator[str]:
    """The words, a switch and a truth behind it as one: no run is called true."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    at = 0
    while at < len(argv):
        word = argv[at]
        option = known.get(word.replace("_", "-").lower()) if at + 1 < len(own) and word.startswith("--") else None
        if option is not None and option.is_switch and argv[at + 1].lower() in ("true", "false"):
            word, at = f"{word}={argv[at + 1]}", at + 1
        yield word
        at += 1


def _by_name(options: Sequence[Option]) -> dict[str, Option]:
    found = {}
    for option in options:
        found.update({f"--{name}": option for name in (option.name, *option.aliases)})
        if option.short:
            found[f"-{option.short}"] = option
    return found


def _option(word: str, words: Iterator[str], known: dict[str, Option]) -> tuple[Option, str | bool]:
    flag, equals, attached = word.partition("=")
    if flag.startswith("--"):
        flag = flag.replace("_", "-").lower()
    option, turned_off = known.get(flag), False
    if option is None and flag.startswith("--no-"):
        option = known.get(f"--{flag[5:]}")
        turned_off = option is not None and option.negatable
        option = option if turned_off else None
    if option is None and not flag.startswith("--") and flag[:2] in known and not known[flag[:2]].is_switch:
        option, flag, equals, attached = known[flag[:2]], flag[:2], "=", word[2:]
    if option is None:
        raise _unknown(flag, known)
    if option.is_switch:
        return option, _switch(option, flag, attached if equals else None, turned_off=turned_off)
    if not equals:
        attached = next(words, "--")
        if attached.startswith("--"):
            raise InputError(f"needs a value{_accepted(option)}", where=flag)
    if not attached:
        raise InputError(f"is given nothing{_accepted(option) or '; a value is needed'}", where=flag)
    if option.choices and attached not in option.choices:
        raise InputError(f"{attached!r} is not known{_accepted(option)}", where=flag)
    return option, attached


def _unknown(flag: str, known: dict[str, Option]) -> InputError:
    if flag in ELSEWHERE:
        return InputError(f"unknown option {flag!r}; {ELSEWHERE[flag]}")
    return UnknownNameError("option", flag, {name for name in known if name.startswith("--")})


def _together(option: Option, word: str, before: str | bool | None, value: str | bool) -> str | bool:
    """A flag's value beside the one that it was given before.

    Raises:
        InputError: it takes one, and they differ.
    """
    if before is None or before == value:
        return value
    if option.repeatable and isinstance(before, str) and isinstance(value, str):
        return f"{before},{value}"
    shown = "on and off" if option.is_switch else f"{before} and {value}"
    raise InputError(f"is given twice, as {shown}; give it once", where=word.partition("=")[0])


def _switch(option: Option, flag: str, attached: str | None, *, turned_off: bool) -> bool:
    if attached is None:
        return not turned_off
    value = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(attached.lower())
    if value is None or turned_off or (value is False and not option.negatable):
        raise InputError(f"is a switch and takes no value {attached!r}", where=flag)
    return value


def _accepted(option: Option) -> str:
    return f"; accepted: {', '.join(option.choices)}" if option.choices else ""


def _check_arguments(command: Command, name: str, arguments: Sequence[str]) -> None:
    required = [argument.name for argument in command.arguments if argument.required]
    if len(arguments) < len(required):
        raise InputError(f"{required[len(arguments)]} is missing; see `memcalc {name} --help`", where=name)
    if len(arguments) > len(command.arguments) and not any(argument.many for argument in command.arguments):
        extra = arguments[len(command.arguments)]
        raise InputError(f"{extra!r} is one argument too many; see `memcalc {name} --help`", where=name)
