"""Reading a run file: YAML with the line of every key, closed to what no honest file holds."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.errors import InputError

if TYPE_CHECKING:
    import yaml

MAX_FILE_BYTES = 2**20
"""No run file is larger."""

MAX_VALUES = 100_000
"""No run file holds more values, aliases expanded."""

Place = tuple[str, ...]


class Document(NamedTuple):
    """What a file holds.

    Attributes:
        data: its top map.
        lines: the line of each key, by its place.
    """

    data: dict[str, Any]
    lines: dict[Place, int]


def read_yaml(path: str | Path) -> Document:
    """The map in a YAML (or JSON) file.

    Raises:
        InputError: it is missing, a folder, over 1 MiB, not text, not YAML, names a key twice, or holds no map.
    """
    text = read_text(path)
    return parse_yaml(text, where=str(path))


def parse_yaml(text: str, *, where: str) -> Document:
    """The map in a YAML text; `where` is what messages call it."""
    node = _compose(text, where)
    if node is None:
        raise InputError("is empty; a map of keys such as model: llama-7b was expected", where=where)
    reader = _Reader(where)
    try:
        data = reader.value(node, ())
    except RecursionError:
        raise InputError("is nested too deeply", where=where) from None
    if not isinstance(data, dict):
        raise InputError(f"holds {describe(data)}; a map of keys such as model: llama-7b was expected", where=where)
    return Document(data, reader.lines)


def parse_value(text: str, *, where: str) -> Any:
    """One YAML value written on the command line."""
    node = _compose(text, where)
    return None if node is None else _Reader(where).value(node, ())


def read_text(path: str | Path, *, max_bytes: int = MAX_FILE_BYTES, what: str = "run file", where: str | None = None) -> str:
    """The text of a regular file of reasonable size; `what` and `where` are what messages call it and its place.

    Raises:
        InputError: it is missing, a folder, a device, too large, unreadable, or not UTF-8.
    """
    where = where or str(path)
    try:
        info = os.stat(path)  # noqa: PTH116 (a path may hold what pathlib refuses)
        if stat.S_ISDIR(info.st_mode):
            raise InputError(f"is a folder; a {what} was expected", where=where)
        if not stat.S_ISREG(info.st_mode):
            raise InputError("is not a regular file", where=where)
        if info.st_size > max_bytes:
            raise InputError(f"holds {info.st_size / 2**20:,.1f} MiB, far more than a {what}", where=where)
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"is not text; a {what} was expected", where=where) from None
    except FileNotFoundError:
        raise InputError("no such file", where=where) from None
    except PermissionError:
        raise InputError("cannot be read: permission denied", where=where) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", where=where) from None


def describe(value: Any) -> str:
    """A value in a message: short, and never the whole of something nested."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:45]}… ({len(text)} characters)"


def _compose(text: str, where: str) -> yaml.Node | None:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        kind = "JSON" if where.endswith(".json") else "YAML"
        raise InputError(f"is not {kind}: {error.problem or error.context}", where=f"{where}{line}") from None
    except yaml.reader.ReaderError:
        raise InputError("is not text; a run file in YAML was expected", where=where) from None
    except RecursionError:
        raise InputError("is nested too deeply", where=where) from None
    return node


class _Reader:
    """From YAML's nodes to values, once for each node however often it is referred to."""

    def __init__(self, where: str) -> None:
        import yaml

        self.where = where
        self._constructor = yaml.constructor.SafeConstructor()
        self.lines: dict[Place, int] = {}
        self._done: dict[int, tuple[Any, int]] = {}
        self._open: set[int] = set()
        self._sizes: list[int] = [0]

    def value(self, node: yaml.Node, place: Place) -> Any:
        """The value of a node, and the lines of the keys below."""
        key = id(node)
        if key in self._done:
            value, size = self._done[key]
        elif key in self._open:
            raise self._error("refers to itself", node)
        else:
            self._open.add(key)
            self._sizes.append(1)
            value = self._construct(node, place)
            size = self._sizes.pop()
            self._open.discard(key)
            self._done[key] = value, size
        self._sizes[-1] += size
        if self._sizes[-1] > MAX_VALUES:
            raise self._error(f"holds more than {MAX_VALUES:,} values", node)
        return value

    def _construct(self, node: yaml.Node, place: Place) -> Any:
        import yaml

        if isinstance(node, yaml.MappingNode):
            return self._map(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, str(i))) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _map(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                for other in self._merged(value_node, place):
                    merged = {**other, **merged}
                continue
            key = self._scalar(key_node) if not isinstance(key_node.value, list) else None
            if not isinstance(key, str):
                raise self._error(f"has the key {describe(key)}; keys are names", key_node)
            if key in found:
                raise self._error(f"names the key {'.'.join((*place, key))!r} twice; keep one of them", key_node)
            here = (*place, key)
            self.lines[here] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, here)
        return {**merged, **found}

    def _merged(self, node: yaml.Node, place: Place) -> list[dict[str, Any]]:
        """The maps behind ``<<``, the first of which wins."""
        value = self.value(node, place)
        maps = value if isinstance(value, list) else [value]
        if not all(isinstance(one, dict) for one in maps):
            raise self._error("merges with '<<' what is no map", node)
        return maps

    def _scalar(self, node: yaml.Node) -> Any:
        import yaml

        try:
            return self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or str(error)
            raise self._error(f"holds a value that cannot be read: {problem}", node) from None

    def _error(self, message: str, node: yaml.Node) -> InputError:
        return InputError(message, where=f"{self.where}:{node.start_mark.line + 1}")
