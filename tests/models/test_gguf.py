"""GGUF headers: sizes with scales, split files, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.models.gguf import read_gguf
from tests.models.gguf_files import LLAMA, llama_tensors, write


def test_tensors_weigh_what_their_types_say(tmp_path: Path) -> None:
    """256 values in 144 bytes, in 210 for the output; long lists are passed over."""
    header = read_gguf(write(tmp_path / "m.gguf", LLAMA, llama_tensors()))
    assert header.metadata["tokenizer.ggml.tokens"] == {"length": 5000}
    sizes = {tensor.name: tensor.bytes for tensor in header.tensors}
    assert (sizes["blk.3.ffn_down.weight"], sizes["output.weight"], sizes["output_norm.weight"]) == (1024 * 2 * 144, 5000 * 2 * 210, 2048)
    assert header.numel == sum(tensor.numel for tensor in header.tensors)


def test_all_parts_of_a_split_file_are_read(tmp_path: Path) -> None:
    tensors = llama_tensors()
    names = list(tensors)
    for i, some in enumerate((names[:10], names[10:])):
        write(tmp_path / f"m-{i + 1:05d}-of-00002.gguf", LLAMA if i == 0 else {"split.no": 1}, {name: tensors[name] for name in some})
    assert len(read_gguf(str(tmp_path / "m-00001-of-00002.gguf")).tensors) == len(tensors)
    (tmp_path / "n-00001-of-00002.gguf").write_bytes((tmp_path / "m-00001-of-00002.gguf").read_bytes())
    with pytest.raises(InputError, match="n-00002-of-00002"):
        read_gguf(str(tmp_path / "n-00001-of-00002.gguf"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version https://git-lfs", "not a GGUF"),
        (b"GGUF\x01\0\0\0", "version 1"),
        (b"GGUF\x03\0\0\0\x01", "cut off"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, "too many"),
    ],
)
def test_what_is_no_such_file_is_refused_in_a_line(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_gguf(str(path))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_gguf("/nowhere/m.gguf")
