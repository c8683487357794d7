"""What hangs above a tensor in a recorded graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memcalc.tape.tape import Node
from memcalc.tape.tensor import Tensor


def saved_above(tensors: Iterable[Tensor]) -> list[Tensor]:
    """All that is saved by the operators that tensors come from, however far: what lives as long as they do, if nothing runs back."""
    found: list[Tensor] = []
    seen: set[int] = set()
    queue: list[Any] = [tensor.node for tensor in tensors]
    while queue:
        node = queue.pop()
        if not isinstance(node, Node) or id(node) in seen:
            continue
        seen.add(id(node))
        found += [kept for kept in node.saved if isinstance(kept, Tensor)]  # what was sent to the host is not on the card
        queue += [edge[0] for edge in node.edges if edge is not None]
    return found
