"""Help is made from the commands' declarations."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from memcalc.cli.shell.registry import load, names

MAIN = "import sys; sys.argv[0] = 'memcalc'; from memcalc.cli import main; sys.exit(main())"


def memcalc(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run([sys.executable, "-c", MAIN, *words], capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_the_commands(words: tuple[str, ...]) -> None:
    done = memcalc(*words)
    assert (done.returncode, done.stderr) == (0, "")
    for name in names():
        assert name in done.stdout


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("name", names())
def test_help_of_a_command_shows_every_flag_whole(name: str, columns: str) -> None:
    done = memcalc(name, "--help", COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
    words = done.stdout.split()
    missing = [option.name for option in load(name).options() if f"--{option.name}" not in words]
    assert missing == []
    assert "Exit status" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= max(int(columns), 110)


def test_the_version() -> None:
    import memcalc as package

    assert memcalc("--version").stdout == f"memcalc {package.__version__}\n"
