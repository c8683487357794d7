"""A file that may hold anything is read, or refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.models.files import MAX_FILE_BYTES, read_json


def refusal(path: Path) -> str:
    """What is said of a file that cannot be used; always one line that names it."""
    with pytest.raises(InputError) as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value.message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"hidden_size": 40', "is cut off"),
        (b'{"model_type": "lla', "is cut off"),
        (b"model_type: llama", "is not JSON: Expecting value at line 1, column 1"),
        (b"<html>", "is not JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "is not text"),
        (b"[1, 2]", "holds a JSON array"),
        (b"null", "holds a JSON null"),
        (b"true", "holds a JSON boolean"),
        (b"3", "holds a JSON number"),
        (b'"llama"', "holds a JSON string"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "names the key 'c' twice"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
    ],
)
def test_what_is_not_a_config_is_named_for_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert said in refusal(tmp_path / "config.json")


def test_a_missing_file_a_folder_and_a_pipe_are_refused_before_reading(tmp_path: Path) -> None:
    assert refusal(tmp_path / "config.json") == "no such file"
    assert "is a folder" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")


def test_a_file_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    """A sparse file: reading it would take seconds and the memory."""
    path = tmp_path / "config.json"
    path.touch()
    os.truncate(path, 300 * 2**20)
    assert "300.0 MiB" in refusal(path)
    os.truncate(path, MAX_FILE_BYTES + 1)
    assert "16.0 MiB" in refusal(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    path.chmod(0)
    assert "permission denied" in refusal(path)


def test_a_byte_order_mark_and_a_bare_infinity_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity]}')
    assert read_json(tmp_path / "config.json") == {"time_step_limit": [0.0, float("inf")]}
