"""Every exception ends as one line and an exit status."""

from __future__ import annotations

import pytest

import memcalc.engine.estimate
from memcalc.cli.shell.errors import say
from memcalc.errors import InputError, MissingExtraError
from tests.cli.run import Cli


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InputError("is wrong", where="a.yaml:3"), 2, "memcalc: a.yaml:3: is wrong"),
        (MissingExtraError("trace", "this"), 2, "memcalc: this needs the extra 'trace': pip install 'gpu-memcalc[trace]'"),
        (KeyboardInterrupt(), 130, "memcalc: interrupted"),
        (OSError(28, "No space left on device"), 2, "memcalc: [Errno 28] No space left on device"),
        (MemoryError(), 2, "memcalc: out of memory on this machine"),
    ],
)
def test_one_line_each(error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert say(error) == status
    assert capsys.readouterr().err == f"{line}\n"


def test_lines_and_controls_in_a_message_do_not_break_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(ValueError("one\ntwo\x1b[31m" + "x" * 5000))
    (line,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line
    assert len(line) < 1300


def fail(run: object) -> None:
    raise ZeroDivisionError("no such thing")


def test_a_fault_asks_for_a_report_and_shows_its_place_on_request(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memcalc.engine.estimate, "estimate", fail)
    done = cli("estimate", "llama-7b")
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert line.startswith("memcalc: ZeroDivisionError: no such thing; ")
    assert "please report it" in line
    assert "MEMCALC_DEBUG=1" in line
    monkeypatch.setenv("MEMCALC_DEBUG", "1")
    assert "Traceback" in cli("estimate", "llama-7b").err
