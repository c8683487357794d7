"""What the README shows is what happens: its commands run, their output is as printed, its make targets exist."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from memcalc.cli import main
from memcalc.cli.shell import registry

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MATCH = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Example(NamedTuple):
    """A command, the output shown below it (`...` stands for anything; no output shown, none compared), and its exit status where `echo $?` shows it."""

    command: str
    output: str
    status: int | None = None


def blocks(*languages: str) -> list[str]:
    """The fenced blocks in these languages."""
    return [body for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL) if language in languages]


def console_examples() -> list[Example]:
    """Those written as `$ memcalc …` with their output below."""
    found: list[Example] = []
    prompts = [part.partition("\n") for body in blocks("console") for part in re.split(r"^\$ ", body.replace("\\\n", " "), flags=re.MULTILINE)[1:]]
    for command, _, output in prompts:
        if command == "echo $?":
            found[-1] = found[-1]._replace(status=int(output))
        else:
            found.append(Example(uncommented(command), output.strip()))
    return found


def shell_examples() -> list[Example]:
    """Those written one a line, without output."""
    lines = [uncommented(line) for body in blocks("sh", "bash", "shell") for line in body.replace("\\\n", " ").splitlines()]
    return [Example(line, "") for line in lines if line]


def uncommented(line: str) -> str:
    """A shell line without the comment at its end."""
    return re.sub(r"(^|\s)#.*", "", line).strip()


def files() -> dict[str, str]:
    """What the blocks hold that begin with the name of a file, as a comment."""
    found = {}
    for body in blocks("yaml", "text", "json"):
        first, _, rest = body.partition("\n")
        if re.fullmatch(r"# [\w-]+\.\w+", first):
            found[first[2:]] = rest
    return found


EXAMPLES = console_examples() + shell_examples()
COMMANDS = [example for example in EXAMPLES if example.command.startswith("memcalc ")]


@pytest.mark.parametrize("example", COMMANDS, ids=[example.command for example in COMMANDS])
def test_a_command_answers_as_shown(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    status = main(shlex.split(example.command)[1:])
    out, err = capsys.readouterr()
    assert status in ((0, 1) if example.status is None else (example.status,)), err
    if example.output:
        assert doctest.OutputChecker().check_output(example.output, out + err, MATCH), out + err


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.splitlines()[0])
def test_python_code_runs(code: str) -> None:
    if ">>>" not in code:
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
        return
    test = doctest.DocTestParser().get_doctest(code, {}, "README.md", "README.md", 0)
    assert doctest.DocTestRunner(optionflags=MATCH).run(test).failed == 0


def test_every_command_is_in_the_readme() -> None:
    assert [name for name in registry.names() if f"`{name}`" not in README] == []


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {target for example in EXAMPLES if example.command.startswith("make ") for target in example.command.split()[1:]}
    assert {"demo", "test"} <= targets
    assert [target for target in sorted(targets) if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []


def test_relative_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
