"""Models and cards in words: lists of them, and one model's parameters, layers and cache."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from memcalc.report.style import BOLD, DIM, Style, columns, display_width, pad, words_below, wrap
from memcalc.report.tables import comma_rows, grid
from memcalc.report.words import count
from memcalc.specs.gpus import Gpu
from memcalc.units import GiB, gib
from memcalc.whatif.describe import Description, Part

TREE_DEPTH = 3
MIN_TOLD = 48
"""Columns of what is told of a card: on a narrower page it stands below."""


def listing(head: Sequence[str], rows: Sequence[Sequence[Any]], *, form: str, style: Style, numbers: Sequence[int] = ()) -> str:
    """Rows of plain values as table, json, markdown or csv; `numbers` are the columns that stand at the right."""
    if form == "json":
        return json.dumps([dict(zip(head, row, strict=True)) for row in rows], indent=1, ensure_ascii=False)
    if form == "csv":
        return comma_rows(head, [[value if isinstance(value, int) else _cell(value) for value in row] for row in rows])
    cells = [[_cell(value) for value in row] for row in rows]
    if form == "markdown":
        return grid(cells, head, numbers_from=len(head))
    lines = columns([list(head), *cells], right=[i in numbers for i in range(len(head))], width=style.width)
    return "\n".join([style.paint(lines[0], DIM), *lines[1:]])


def cards(found: Sequence[Gpu], style: Style) -> str:
    """Cards as a table, with their other names and what to know of them beside, or below where the page is narrow."""
    rows = [[card.name, _cell(card.nominal_gb), _range(card), _cell(card.smi_mib), _told(card)] for card in found]
    head = ["name", "sold as GB", "torch sees GiB", "nvidia-smi MiB", "also called; to know"]
    longest = max(display_width(row[-1]) for row in rows)
    lines = words_below([head, *rows], right=[False, True, True, True, False], width=style.width, least=min(longest, MIN_TOLD))
    return "\n".join([style.paint(lines[0], DIM), *lines[1:]])


def card_row(card: Gpu) -> list[Any]:
    """What a page or a spreadsheet has of a card."""
    return [card.name, card.nominal_gb, _range(card), card.smi_mib, list(card.aliases), _note(card)]


def _range(card: Gpu) -> str:
    least, most = f"{card.capacity_bytes / GiB:.2f}", f"{card.most_bytes / GiB:.2f}"
    return least if least == most else f"{least} to {most}"


def _note(card: Gpu) -> str:
    return "; ".join(filter(None, ("few readings" if card.rough else "", card.note)))


def _told(card: Gpu) -> str:
    return "; ".join(filter(None, (", ".join(card.aliases), _note(card))))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def described(found: Description, style: Style, *, depth: int = TREE_DEPTH) -> str:
    """A model: its counts, its layers by kind, its parameter tree."""
    spec = found.spec
    total = found.tree.num_params
    facts = [("model", f"{spec.name} ({spec.model_type})"), ("parameters", f"{total:,} ({count(total)})")]
    if spec.active_params and spec.active_params != total:
        facts.append(("active", f"{spec.active_params:,} ({count(spec.active_params)}) per token"))
    sizes = [("hidden_size", spec.hidden_size), ("vocab_size", spec.vocab_size), ("layers", spec.num_layers), ("length", spec.max_position_embeddings)]
    facts.append(("sizes", ", ".join(f"{name} {value:,}" for name, value in sizes if value)))
    if spec.tied:
        facts.append(("head", "uses the embedding's table: counted once"))
    facts.append(("cache", cache(found)))
    facts += [("checkpoint" if i == 0 else "", line) for i, line in enumerate(checkpoint(found))]
    kinds = [f"{kind.num_layers} × {kind.parts}, {count(kind.num_params)} each{_places(found, kind.places)}" for kind in found.layers]
    facts += [("layers" if i == 0 else "", line) for i, line in enumerate(kinds)]
    facts += [("not run" if i == 0 else "", line) for i, line in enumerate(spec.untraced)]
    facts += [("assumed" if i == 0 else "", line) for i, line in enumerate(getattr(spec, "assumed", ()))]
    lines = [f"{style.paint(pad(label, 12), DIM)}{wrap(text, style.width, indent=' ' * 12)}" for label, text in facts]
    return "\n".join([*lines, "", *_tree(found.tree, style, depth)])


def cache(found: Description) -> str:
    """What each token adds, and what a sequence keeps however long it is."""
    states = f"{found.cache_bytes_per_sequence:,} bytes per sequence, whatever its length" if found.cache_bytes_per_sequence else ""
    if not found.cache_bytes_per_token:
        return "; ".join(filter(None, (found.why_no_cache, states)))
    return " and ".join(filter(None, (f"{found.cache_bytes_per_token:,} bytes per token in bfloat16", states)))


def checkpoint(found: Description) -> list[str]:
    """What it takes on disk, how its weights are quantised, and what its own files say."""
    storage = found.storage
    sizes = storage.stored
    lines = [f"{sizes.bytes:,} bytes ({gib(sizes.bytes)}) in {storage.dtype}"]
    if storage.name:
        each = f"{sizes.quantised_bytes / (sizes.quantised_params or 1):.5g}"
        quantised = f"{count(sizes.quantised_params)} parameters in {storage.name}, {each} bytes each"
        lines = [f"{sizes.bytes:,} bytes ({gib(sizes.bytes)}): {quantised}; {count(sizes.plain_params)} in {storage.dtype}", storage.training]
    return [*lines, *storage.notes]


def as_dict(found: Description) -> dict[str, Any]:
    """The same as plain data."""
    spec = found.spec
    return {
        "name": spec.name,
        "model_type": spec.model_type,
        "params": {"total": found.tree.num_params, "active": spec.active_params or found.tree.num_params},
        "cache_bytes_per_token": found.cache_bytes_per_token,
        "cache_bytes_per_sequence": found.cache_bytes_per_sequence,
        "checkpoint": {
            "bytes": found.storage.stored.bytes,
            "dtype": found.storage.dtype,
            "quantization": found.storage.name or None,
            **found.storage.stored._asdict(),
            "notes": list(found.storage.notes),
        },
        "layers": [{"count": kind.num_layers, "parts": kind.parts, "params": kind.num_params, "places": kind.places} for kind in found.layers],
        "tree": _plain(found.tree),
        "assumptions": list(getattr(spec, "assumed", ())),
    }


def tree_rows(part: Part, depth: int, level: int = 0) -> Iterator[tuple[int, Part]]:
    """The parts down to a depth with their levels, the whole first; one that holds a single part stands for it."""
    while len(part.parts) == 1:
        (only,) = part.parts
        part = part._replace(shape=only.shape, parts=only.parts)
    yield level, part
    if level < depth:
        for below in part.parts:
            yield from tree_rows(below, depth, level + 1)


def _places(found: Description, places: str) -> str:
    return f" (layers {places})" if len(found.layers) > 1 else ""


def _tree(tree: Part, style: Style, depth: int) -> list[str]:
    rows = []
    for level, part in tree_rows(tree, depth):
        name = "  " * level + (part.name or "all") + (f"  × {part.repeat}" if level == 1 and part.repeat > 1 else "")
        shape = " × ".join(f"{size:,}" for size in part.shape)
        rows.append([name, f"{part.num_params:,}", f"{part.num_params / (tree.num_params or 1):.1%}", shape])
    lines = columns([["path", "parameters", "share", "shape"], *rows], right=[False, True, True, False], width=style.width)
    return [style.paint(lines[0], DIM), style.paint(lines[1], BOLD), *lines[2:]]


def _plain(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {"name": part.name, "path": part.path, "params": part.num_params}
    if part.shape:
        found["shape"] = list(part.shape)
    if part.repeat > 1:
        found["repeat"] = part.repeat
    if part.parts:
        found["parts"] = [_plain(below) for below in part.parts]
    return found
