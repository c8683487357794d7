"""What a checkpoint beside a config.json holds, from the headers of its safetensors files; no tensor is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.models.files import read_json

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
"""The format's own limit (safetensors/src/tensor.rs, MAX_HEADER_SIZE)."""
MAX_INDEX_BYTES = 256 * 2**20


class Checkpoint(NamedTuple):
    """A checkpoint's weights.

    Attributes:
        source: what says so.
        bytes: of all tensors.
        elements: of all tensors, packed ones as they are packed; None where only an index is there.
    """

    source: str
    bytes: int
    elements: int | None = None


def read_checkpoint(folder: str | Path) -> Checkpoint | None:
    """The safetensors files of a folder, or their index where they are not there; None without any.

    Raises:
        InputError: what is there is not what it should be.
    """
    index, single = Path(folder, INDEX), Path(folder, SINGLE)
    if index.is_file():
        return _indexed(index)
    if single.is_file():
        return Checkpoint(SINGLE, *tensor_sizes(single))
    return None


def tensor_sizes(path: Path) -> tuple[int, int]:
    """Bytes and elements of all tensors in a safetensors file.

    The file begins with the length of its header (8 bytes, little-endian), then that header: JSON with each tensor's dtype, shape and
    place (https://huggingface.co/docs/safetensors, "Format").

    Raises:
        InputError: it is not such a file, or is cut off.
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 1 < length <= MAX_HEADER_BYTES:
                raise InputError("is not a safetensors file (a Git LFS pointer, perhaps): its header would be too long", where=where)
            text = file.read(length)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=where) from None
    try:
        header = json.loads(text)
        tensors = [value for name, value in header.items() if name != "__metadata__"]
        ends = [_extent(tensor) for tensor in tensors]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError("has a header that is not that of a safetensors file", where=where) from None
    if 8 + length + max((end for _, end, _ in ends), default=0) > size:
        raise InputError("is cut off: it is shorter than its header says", where=where)
    return sum(end - begin for begin, end, _ in ends), sum(numel for _, _, numel in ends)


# ---------------------------------------------------------------------- inside
def _indexed(index: Path) -> Checkpoint:
    data = read_json(index, max_bytes=MAX_INDEX_BYTES)
    names = data.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise InputError("has no weight_map from tensors to files", where=str(index))
    files = sorted(set(names.values()))
    if any(os.path.basename(name) != name or name.startswith(".") for name in files):  # noqa: PTH119 (a name, not a path)
        raise InputError("names files outside its folder", where=str(index))
    paths = [index.parent / name for name in files]
    if paths and all(path.is_file() for path in paths):
        sizes = [tensor_sizes(path) for path in paths]
        return Checkpoint(f"{len(paths)} safetensors files", sum(size for size, _ in sizes), sum(numel for _, numel in sizes))
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or total <= 0:
        raise InputError("says no total_size, and the files that it names are not here", where=str(index))
    return Checkpoint(INDEX, total)


def _extent(tensor: dict[str, Any]) -> tuple[int, int, int]:
    """Begin and end of a tensor in its file, and its elements."""
    begin, end = tensor["data_offsets"]
    numel = 1
    for size in tensor["shape"]:
        if not isinstance(size, int) or size < 0:
            raise ValueError
        numel *= size
    if not isinstance(begin, int) or not isinstance(end, int) or not 0 <= begin <= end:
        raise ValueError
    return begin, end, numel
