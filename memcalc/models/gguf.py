"""A GGUF file's header: what it says of its model, and each tensor's shape and type. No tensor is read, and long lists (tokens) are passed over.

The `gguf` package reads such files, too; it needs numpy and makes an array of every token, which takes seconds. The header is a few plain records.

Source: ggml/docs/gguf.md.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from memcalc.errors import InputError
from memcalc.formulas.ggml import BY_NUMBER, TYPES

MAGIC = b"GGUF"
VERSIONS = (2, 3)
"""Of the format, with lengths of 64 bits; the first had 32."""
MAX_ENTRIES, MAX_TEXT, MAX_LIST, MAX_DIMS = 1 << 20, 1 << 26, 1 << 12, 8
"""Entries of a header, bytes of a text, values of a list that is kept, and dimensions of a tensor (ggml's have up to four)."""
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
"""Types of values (``gguf_metadata_value_type``), numbers as `struct` names them."""
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class Stored(NamedTuple):
    """A tensor.

    Attributes:
        name: of llama.cpp's.
        shape: the fastest axis first.
        kind: a name of `memcalc.formulas.ggml.TYPES`.
    """

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def numel(self) -> int:
        """Elements."""
        found = 1
        for size in self.shape:
            found *= size
        return found

    @property
    def bytes(self) -> int:
        """As stored, with its scales."""
        kind = TYPES[self.kind]
        return self.numel // kind.block * kind.block_bytes


class Gguf(NamedTuple):
    """A model's header, of all its files.

    Attributes:
        path: as given.
        metadata: what it says, without long lists; of those, their length.
        tensors: all.
    """

    path: str
    metadata: dict[str, Any]
    tensors: tuple[Stored, ...]

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def numel(self) -> int:
        """Elements of all tensors."""
        return sum(tensor.numel for tensor in self.tensors)


@lru_cache(maxsize=4)
def read_gguf(path: str) -> Gguf:
    """The header of a file, or of all files of a model that is split (``…-00001-of-00003.gguf``).

    Raises:
        InputError: it is no such file, is cut off, or one of its parts is missing.
    """
    metadata, tensors = dict[str, Any](), list[Stored]()
    for part in _parts(path):
        found, more = _header(part)
        metadata = found | metadata
        tensors += more
    return Gguf(path, metadata, tuple(tensors))


# ---------------------------------------------------------------------- inside
def _parts(path: str) -> list[str]:
    match = PART.search(path)
    if match is None:
        return [path]
    names = [f"{path[: match.start()]}-{i:05d}-of-{match[2]}.gguf" for i in range(1, int(match[2]) + 1)]
    missing = next((name for name in names if not Path(name).is_file()), None)
    if missing is not None:
        raise InputError(f"is one of {int(match[2])} files, and {Path(missing).name} is not beside it", where=path)
    return names


def _header(path: str) -> tuple[dict[str, Any], list[Stored]]:
    try:
        with Path(path).open("rb") as file:
            read = _Reader(file, path)
            if file.read(4) != MAGIC:
                raise InputError("is not a GGUF file (a Git LFS pointer, perhaps)", where=path)
            if (version := read.number("I")) not in VERSIONS:
                raise InputError(f"is GGUF of version {version}; versions 2 and 3 are known", where=path)
            num_tensors, num_keys = read.count("Q"), read.count("Q")
            metadata = {read.text(): read.value(read.number("I")) for _ in range(num_keys)}
            return metadata, [read.tensor() for _ in range(num_tensors)]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=path) from None
    except (struct.error, UnicodeDecodeError):
        raise InputError("is cut off, or its header is not that of a GGUF file", where=path) from None


class _Reader:
    """Little-endian records, one after the other."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self.file, self.where = file, where

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.file.read(struct.calcsize(code)))[0]

    def count(self, code: str) -> int:
        found = int(self.number(code))
        if found > MAX_ENTRIES:
            raise InputError("has a header that is not that of a GGUF file: it would have too many entries", where=self.where)
        return found

    def text(self) -> str:
        length = int(self.number("Q"))
        if length > MAX_TEXT:
            raise InputError("has a header that is not that of a GGUF file: a text in it would be too long", where=self.where)
        return self.file.read(length).decode()

    def value(self, kind: int) -> Any:
        """A value; of a long list its length, as ``{"length": n}``."""
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            return self.many(int(self.number("I")), int(self.number("Q")))
        if kind not in SCALARS:
            raise InputError(f"has a value of type {kind}, which GGUF does not know", where=self.where)
        return self.number(SCALARS[kind])

    def many(self, kind: int, length: int) -> Any:
        if kind in SCALARS and length > MAX_LIST:
            self.file.seek(length * struct.calcsize(SCALARS[kind]), 1)
            return {"length": length}
        if kind == TEXT and length > MAX_LIST:
            for _ in range(length):
                self.file.seek(int(self.number("Q")), 1)
            return {"length": length}
        return [self.value(kind) for _ in range(length)]

    def tensor(self) -> Stored:
        name, dims = self.text(), self.number("I")
        if dims > MAX_DIMS:
            raise InputError(f"has a tensor {name!r} of {dims} dimensions", where=self.where)
        shape = tuple(int(self.number("Q")) for _ in range(dims))
        number, _ = self.number("I"), self.number("Q")
        if number not in BY_NUMBER:
            raise InputError(f"has a tensor {name!r} of ggml type {number}, which is not known", where=self.where)
        return Stored(name, shape, BY_NUMBER[number])
