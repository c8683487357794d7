"""Terms rolled up into the rows of a table: kinds, their parts, and what is too small to see put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from memcalc.engine.result import Term

DEPTH = 3
"""Levels that are shown."""

LEAST = 0.01
"""Share of the largest total below which a row is put together with its like."""

ORDER = ("weights", "gradients", "optimizer", "activations", "logits & loss", "cache")
"""Kinds in the order in which people ask for them; others follow by size."""

LOSS = ("lm_head", "gradient of nll", "gradient of log-softmax", "gradient of logits", "loss")
"""What of the activations belongs to the end of the model."""


class Row(NamedTuple):
    """One row.

    Attributes:
        label: what it is.
        path: where it stands in the terms' paths, as shown.
        depth: its level; 0 is a kind.
        values: bytes in each column.
    """

    label: str
    path: tuple[str, ...]
    depth: int
    values: tuple[int, ...]


class _Node:
    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.children: dict[str, _Node] = {}


def rows_of(columns: Sequence[Iterable[Term]], *, depth: int = DEPTH, least: float = LEAST) -> list[Row]:
    """The rows of a table whose columns are what is alive at different moments.

    Args:
        columns: terms of each.
        depth: levels to show.
        least: see `LEAST`.
    """
    root = _tree(columns)
    floor = least * max((abs(total) for total in root.values), default=0)
    small = [name for name, node in root.children.items() if _size(node) < floor / 10]
    rows = [row for name in _sorted(root.children) if name not in small for row in _rows(name, root.children[name], (name,), depth, floor)]
    if small:
        values = _sum((root.children[name] for name in small), len(root.values))
        rows.append(Row(", ".join(sorted(small)), ("other",), 0, values))
    return rows


def shown_path(path: str) -> tuple[str, ...]:
    """The place of a term in the table.

    >>> shown_path("activations/lm_head/logits in fp32")
    ('logits & loss', 'lm_head', 'logits in fp32')
    >>> shown_path("activations/gradient of silu")
    ('activations', 'in backward', 'gradient of silu')
    """
    parts = tuple(path.split("/"))
    if parts[0] == "activations" and len(parts) > 1:
        if parts[1] in LOSS:
            return ("logits & loss", *parts[1:])
        if parts[1].startswith("gradient of "):
            return (parts[0], "in backward", *parts[1:])
    return parts


def totals(columns: Sequence[Iterable[Term]]) -> dict[str, tuple[int, ...]]:
    """Bytes of each kind in each column."""
    root = _tree(columns)
    return {name: tuple(root.children[name].values) for name in _sorted(root.children)}


# ---------------------------------------------------------------------- inside
def _tree(columns: Sequence[Iterable[Term]]) -> _Node:
    count = len(columns)
    root = _Node([0] * count)
    for i, terms in enumerate(columns):
        for term in terms:
            node = root
            node.values[i] += term.bytes
            for part in shown_path(term.path):
                node = node.children.setdefault(part, _Node([0] * count))
                node.values[i] += term.bytes
    return root


def _size(node: _Node) -> int:
    return max(map(abs, node.values), default=0)


def _sum(nodes: Iterable[_Node], count: int) -> tuple[int, ...]:
    listed = list(nodes)
    return tuple(sum(node.values[i] for node in listed) for i in range(count))


def _sorted(nodes: Mapping[str, _Node]) -> list[str]:
    rank = {name: i for i, name in enumerate(ORDER)}
    return sorted(nodes, key=lambda name: (rank.get(name, len(rank)), -_size(nodes[name]), name))


def _together(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 28 else f"{len(names)} smaller"


def _rows(name: str, node: _Node, path: tuple[str, ...], depth: int, floor: float) -> Iterator[Row]:
    label, values = name, tuple(node.values)
    while len(node.children) == 1:  # a level that says no more than the one above is left out
        ((below, node),) = node.children.items()
        label = below if len(path) == 1 and len(name) + len(below) > 24 else f"{label} / {below}" if len(path) == 1 else label
    yield Row(label, path, len(path) - 1, values)
    if len(path) >= depth:
        return
    seen = [child for child in sorted(node.children, key=lambda c: (-_size(node.children[c]), c)) if _size(node.children[child]) >= floor]
    rest = [child for child in node.children if child not in seen]
    if not seen:
        return
    for child in seen:
        yield from _rows(child, node.children[child], (*path, child), depth, floor)
    values = _sum((node.children[child] for child in rest), len(node.values))
    if rest and max(map(abs, values)) >= floor / 2:
        yield Row(_together(rest), (*path, "smaller"), len(path), values)
