"""Commands are found by their files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import memcalc.cli
from memcalc.cli.shell.registry import load, names
from memcalc.errors import UnknownNameError
from tests.cli.run import Cli


def test_a_file_is_a_command() -> None:
    files = {path.stem.replace("_", "-") for path in Path(memcalc.cli.__path__[0]).glob("*.py")} - {"--init--"}
    assert set(names()) == files
    assert {"estimate", "models", "gpus", "compare", "trace"} <= files


@pytest.mark.parametrize("name", names())
def test_a_command_says_what_it_answers(name: str) -> None:
    command = load(name)
    assert command.help
    assert command.example
    assert all(re.search(r"(^|\| )memcalc ", line) for line in command.example)


def test_an_unknown_command_names_the_nearest(cli: Cli) -> None:
    with pytest.raises(UnknownNameError):
        load("estimat")
    assert "unknown command 'estimat'; did you mean estimate" in cli.refused("estimat", "llama-7b")


def test_only_the_invoked_command_is_imported() -> None:
    code = "import sys; from memcalc.cli import main; main(['gpus']); print(*sorted(m for m in sys.modules if m.startswith('memcalc.cli.')), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[2] for name in done.stderr.split()} - {"shell"}
    assert loaded == {"gpus"}
