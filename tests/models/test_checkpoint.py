"""Headers of safetensors files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.models.checkpoint import INDEX, SINGLE, Checkpoint, read_checkpoint, tensor_sizes


def write(path: Path, tensors: dict[str, tuple[str, list[int], int]], *, body: int | None = None) -> int:
    """A file with zeros for tensors: dtype, shape, bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end if body is None else body))
    return end


TWO = {"a.weight": ("BF16", [3, 4], 24), "b.weight": ("U8", [10, 1], 10)}


def test_one_file(tmp_path: Path) -> None:
    write(tmp_path / SINGLE, TWO)
    assert read_checkpoint(tmp_path) == Checkpoint(SINGLE, 34, 22)


def test_shards_are_summed_over_the_files_of_the_index(tmp_path: Path) -> None:
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for name in names:
        write(tmp_path / name, TWO)
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": {"a.weight": names[0], "b.weight": names[1]}}))
    assert read_checkpoint(tmp_path) == Checkpoint("2 safetensors files", 68, 44)


def test_an_index_alone_says_how_large_they_are(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": 65_248_815_744.0}, "weight_map": {"a": "model-1.safetensors"}}))
    assert read_checkpoint(tmp_path) == Checkpoint(INDEX, 65_248_815_744)


def test_a_folder_without_any(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert read_checkpoint(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer, perhaps"),
        (b"", "is not a safetensors file"),
        ((2**40).to_bytes(8, "little"), "is not a safetensors file"),
        ((4).to_bytes(8, "little") + b"nope", "has a header that is not that of a safetensors file"),
        ((2).to_bytes(8, "little") + b"[]", "has a header that is not that of a safetensors file"),
        ((9).to_bytes(8, "little") + b'{"a": {}}', "has a header that is not that of a safetensors file"),
    ],
)
def test_what_is_no_such_file_is_said_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / SINGLE).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path / SINGLE, TWO, body=30)
    with pytest.raises(InputError, match="is cut off"):
        tensor_sizes(tmp_path / SINGLE)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"metadata": {"total_size": 1}, "weight_map": {"a": "../secret.safetensors"}}, "names files outside its folder"),
        ({"metadata": {"total_size": 1}, "weight_map": []}, "has no weight_map"),
        ({"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}, "says no total_size"),
        ({"metadata": {"total_size": -5}, "weight_map": {"a": "model-1.safetensors"}}, "says no total_size"),
    ],
)
def test_an_index_that_is_none(tmp_path: Path, index: dict[str, Any], message: str) -> None:
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(InputError, match=message):
        read_checkpoint(tmp_path)
