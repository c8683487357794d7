"""What goes while a program still has a variable for it, since the code that it stands for has none."""

from __future__ import annotations

from memcalc.tape.tensor import Tensor


def let_go(x: Tensor, begin: int = 0) -> None:
    """A model is through, and with it its variable for x, whose loss is computed outside: x goes, unless an operator after the first so many saved it."""
    saved = (kept for node in x.tape.nodes[begin:] for kept in node.saved)
    if x.storage is not None and not any(isinstance(kept, Tensor) and kept.storage is x.storage for kept in saved):
        x.storage.drop()
