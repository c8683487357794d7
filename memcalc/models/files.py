"""Reading one JSON object from a file that may hold anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memcalc.errors import InputError
from memcalc.specs.files import read_text

MAX_FILE_BYTES = 16 * 2**20
"""No config.json is larger: real ones hold a few kB, the largest known some 40 kB."""


def read_json(path: str | Path, *, where: str | None = None, max_bytes: int = MAX_FILE_BYTES) -> dict[str, Any]:
    """The JSON object in a file; ``Infinity`` and ``NaN`` are read as Python's json reads them.

    Args:
        path: a regular file.
        where: what messages call it, by default the path.
        max_bytes: a larger file is refused.

    Raises:
        InputError: it is missing, a folder, a device, unreadable, too large, not text, not JSON, cut off, nested too deeply,
            not an object, or names a key twice.
    """
    where = where or str(path)
    text = read_text(path, max_bytes=max_bytes, what="config.json", where=where)
    if not text.strip():
        raise InputError("is empty; a config.json was expected", where=where)
    try:
        data = json.loads(text, object_pairs_hook=_object)
    except _DuplicateKeyError as error:
        raise InputError(f"names the key {error.args[0]!r} twice; keep one of them", where=where) from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        what = "is cut off: the JSON ends" if cut else f"is not JSON: {error.msg}"
        raise InputError(f"{what} at line {error.lineno}, column {error.colno}", where=where) from None
    except RecursionError:
        raise InputError("is nested too deeply to be a config.json", where=where) from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise InputError("holds a number of thousands of digits", where=where) from None
    if not isinstance(data, dict):
        raise InputError(f"holds a JSON {_json_type(data)}; a config.json is an object", where=where)
    return data


class _DuplicateKeyError(Exception):
    """A key that stands twice in one object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(key)
            seen.add(key)
    return found


def _json_type(value: Any) -> str:
    for kind, name in ((list, "array"), (str, "string"), (bool, "boolean"), ((int, float), "number")):
        if isinstance(value, kind):
            return name
    return "null"
