"""Help and shell completion, by typer, from the commands' declarations. Nothing else here imports typer, and parsing does not."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from memcalc.cli.shell import registry
from memcalc.cli.shell.command import Argument, Command, Option

if TYPE_CHECKING:
    import typer

ABOUT = "Will this job fit, on every rank, at every instant of its step? GPU memory of training and inference, before launch."
EXIT = "Exit status: 0 it fits, or no card was named; 1 it does not fit; 2 bad input."


def show_help(argv: Sequence[str]) -> int:
    """Print help, or answer a shell that asks for completions."""
    result = app()(args=list(argv), prog_name="memcalc", standalone_mode=False)
    return result if isinstance(result, int) else 0


def app() -> typer.Typer:
    """All commands as a typer application."""
    import typer

    found = typer.Typer(
        help=ABOUT,
        epilog=EXIT,
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    found.callback(help=ABOUT)(_stub([_option(Option("version", "show the version", short="V", group="Options"))]))
    for name in registry.names():
        command = registry.load(name)
        found.command(name, help=_paragraphs(command), epilog=EXIT)(_function(command))
    return found


def _paragraphs(command: Command) -> str:
    examples = "\n\n".join(f"[dim]$[/dim] {line}" for line in command.example)
    return command.help.replace("[", "\\[") + (f"\n\n{examples}" if examples else "")


def _function(command: Command) -> Any:
    """A function with the signature that typer reads."""
    return _stub([*map(_argument, command.arguments), *(_option(option) for option in command.options())])


def _stub(parameters: Sequence[inspect.Parameter]) -> Any:
    def stub(**values: Any) -> None:  # noqa: ARG001 (typer passes them; only help and completion are its business)
        return

    stub.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    stub.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return stub


def _argument(argument: Argument) -> inspect.Parameter:
    import typer

    kind: Any = list[str] if argument.many else str
    info = typer.Argument(metavar=argument.name, help=argument.help.replace("[", "\\["), show_default=False)
    return _parameter(f"argument_{argument.name}", Annotated[kind if argument.required else kind | None, info], required=argument.required)


def _option(option: Option) -> inspect.Parameter:
    import typer

    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    values = [*option.choices]
    info = typer.Option(
        *names,
        help=_help(option),
        metavar=option.metavar or "",
        rich_help_panel=option.group,
        show_default=False,
        autocompletion=(lambda incomplete: [value for value in values if value.startswith(incomplete)]) if values else None,
    )
    kind: Any = bool if option.is_switch else str
    return _parameter(f"option_{option.name}", Annotated[kind | None, info], required=False)


def _help(option: Option) -> str:
    parts = [option.help]
    if option.choices:
        parts.append(f"one of {', '.join(option.choices)}")
    if option.aliases:
        parts.append(f"also {', '.join(f'--{alias}' for alias in option.aliases)}")
    if option.negatable:
        parts.append(f"--no-{option.name} for off")
    default = f" [dim](default {option.default})[/dim]" if option.default else ""
    return "; ".join(parts).replace("[", "\\[") + default


def _parameter(name: str, annotation: Any, *, required: bool) -> inspect.Parameter:
    default: Any = inspect.Parameter.empty if required else None
    return inspect.Parameter("".join(c if c.isalnum() else "_" for c in name.lower()), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
