"""Running a command in this process."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from memcalc.cli import main


class Done(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


class Cli:
    """Runs commands and takes down what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Done:
        status = main(list(words))
        out, err = self._capsys.readouterr()
        return Done(status, out, err)

    def refused(self, *words: str) -> str:
        """The one line that a refusal prints; nothing may go to stdout."""
        done = self(*words)
        assert done.status == 2, done
        assert done.out == ""
        assert "Traceback" not in done.err
        (line,) = done.err.splitlines()
        assert line.startswith("memcalc: ")
        assert "fault in memcalc" not in line
        return line
