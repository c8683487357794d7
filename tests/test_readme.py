"""What the README shows is what happens: its commands run, their output is as printed, its make targets exist."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN_COMMAND = "import sys; sys.argv[0] = 'memcalc'; from memcalc.cli import main; sys.exit(main())"
MATCH = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Example(NamedTuple):
    """A command and the output shown below it; no output shown, none compared. `...` stands for anything."""

    command: str
    output: str


def blocks(*languages: str) -> list[str]:
    """The fenced blocks in these languages."""
    return [body for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL) if language in languages]


def console_examples() -> list[Example]:
    """Those written as `$ memcalc …` with their output below."""
    prompts = [part.partition("\n") for body in blocks("console") for part in re.split(r"^\$ ", body.replace("\\\n", " "), flags=re.MULTILINE)[1:]]
    return [Example(uncommented(command), output.strip()) for command, _, output in prompts]


def shell_examples() -> list[Example]:
    """Those written one a line, without output."""
    lines = [uncommented(line) for body in blocks("sh", "bash", "shell") for line in body.replace("\\\n", " ").splitlines()]
    return [Example(line, "") for line in lines if line]


def uncommented(line: str) -> str:
    """A shell line without the comment at its end."""
    return re.sub(r"(^|\s)#.*", "", line).strip()


EXAMPLES = console_examples() + shell_examples()
COMMANDS = [example for example in EXAMPLES if example.command.startswith("memcalc ")]


@pytest.mark.parametrize("example", COMMANDS, ids=[example.command for example in COMMANDS])
def test_a_command_answers_as_shown(example: Example) -> None:
    command = [sys.executable, "-c", RUN_COMMAND, *shlex.split(example.command)[1:]]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    if example.output:
        assert doctest.OutputChecker().check_output(example.output, done.stdout + done.stderr, MATCH), done.stdout + done.stderr


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.splitlines()[0])
def test_python_code_runs(code: str) -> None:
    if ">>>" not in code:
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
        return
    test = doctest.DocTestParser().get_doctest(code, {}, "README.md", "README.md", 0)
    assert doctest.DocTestRunner(optionflags=MATCH).run(test).failed == 0


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {target for example in EXAMPLES if example.command.startswith("make ") for target in example.command.split()[1:]}
    assert {"demo", "test"} <= targets
    assert [target for target in sorted(targets) if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)] == []


def test_relative_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
