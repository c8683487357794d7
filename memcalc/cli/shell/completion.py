"""Shell completion, by typer, from the commands' declarations. Nothing else imports typer: its import alone takes as long as an estimate may."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from memcalc.cli.shell import registry
from memcalc.cli.shell.command import Argument, Command, Option

if TYPE_CHECKING:
    import typer


def complete(argv: Sequence[str]) -> int:
    """Install or show completion, or answer a shell that asks for it."""
    result = app()(args=list(argv), prog_name="memcalc", standalone_mode=False)
    return result if isinstance(result, int) else 0


def app() -> typer.Typer:
    """All commands as a typer application that parses them as `memcalc.cli.shell.parse` does."""
    import typer

    found = typer.Typer()
    found.callback()(_stub([]))
    for name in registry.names():
        command = registry.load(name)
        found.command(name, help=command.help)(_function(command))
    return found


def _function(command: Command) -> Any:
    """A function with the signature that typer reads."""
    return _stub([*map(_argument, command.arguments), *(_option(option) for option in command.options())])


def _stub(parameters: Sequence[inspect.Parameter]) -> Any:
    def stub(**values: Any) -> None:  # noqa: ARG001 (never called: only the signature is read)
        return

    stub.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    stub.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return stub


def _argument(argument: Argument) -> inspect.Parameter:
    import typer

    kind: Any = list[str] if argument.many else str
    info = typer.Argument(metavar=argument.name, autocompletion=_models if argument.name == "MODEL" else None)
    return _parameter(f"argument_{argument.name}", Annotated[kind if argument.required else kind | None, info], required=argument.required)


def _option(option: Option) -> inspect.Parameter:
    import typer

    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    declared = [f"--{option.name}/--no-{option.name}"] if option.negatable else names
    info = typer.Option(*declared, help=option.help, autocompletion=_one_of(option.choices) if option.choices else None)
    kind: Any = bool if option.is_switch else str
    return _parameter(f"option_{option.name}", Annotated[kind | None, info], required=False)


def _one_of(choices: Sequence[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def _models(incomplete: str) -> list[str]:
    from memcalc.models.catalogue import names

    return [name for name in names() if name.startswith(incomplete)]


def _parameter(name: str, annotation: Any, *, required: bool) -> inspect.Parameter:
    default: Any = inspect.Parameter.empty if required else None
    spelt = "".join(c if c.isalnum() else "_" for c in name.lower())
    return inspect.Parameter(spelt, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
