"""Findings for other tools: where a run's keys stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcalc.cli.shell.command import Given
from memcalc.cli.shell.files import Asked, asked
from memcalc.cli.shell.tools import file_of, places_of
from memcalc.specs.read import read_run


def test_places_are_lines_of_files_and_no_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text("model_name_or_path: llama-7b\nper_device_train_batch_size: 2\nbf16: true\n", encoding="utf-8")
    found = places_of(asked(Given(("train.yaml",), {}), ["train.yaml"]))
    assert found["micro_batch"] == ("train.yaml", 2)
    assert "grad_accum" not in found
    assert places_of(None) == places_of(Asked(read_run("llama-7b"))) == {}


@pytest.mark.parametrize(
    ("words", "flags", "file"),
    [(("run.yaml",), {}, "run.yaml"), (("llama-7b",), {"config": "a.yaml"}, "a.yaml"), ((), {"from": "a.json,b.yaml"}, "a.json"), (("llama-7b",), {}, "")],
)
def test_the_file_of_a_run_is_found_among_its_words(words: tuple[str, ...], flags: dict[str, str | bool], file: str) -> None:
    assert file_of(Given(words, flags)) == file
