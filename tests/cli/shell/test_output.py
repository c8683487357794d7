"""Where answers go, how wide, and in which colours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from memcalc.cli.shell.command import Given
from memcalc.cli.shell.output import sink
from tests.cli.run import Cli

MAIN = "import sys; from memcalc.cli import main; sys.exit(main())"
ASK = ("estimate", "llama-7b", "--gpu", "h100-80g")


def test_no_colours_in_a_pipe(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" not in cli(*ASK).out


def test_colours_where_they_are_forced_unless_no_color(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in cli(*ASK).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli(*ASK).out


def test_colours_change_no_letter(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    plain = cli(*ASK).out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert re.sub(r"\x1b\[[\d;]*m", "", cli(*ASK).out) == plain


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_lines_keep_within_the_width(cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = cli(*ASK).out.splitlines()
    assert max(map(len, lines)) <= max(columns, 80)


def test_a_file_is_never_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert sink(Given((), {})).colour
    assert not sink(Given((), {"out-file": "x"})).colour


@pytest.mark.skipif(os.name == "nt", reason="pipes differ")
def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f'{sys.executable} -c "{MAIN}" models --format json | head -n 1'
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_unicode_gets_question_marks() -> None:
    done = subprocess.run([sys.executable, "-c", MAIN, *ASK], capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()
