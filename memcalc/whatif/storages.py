"""Every storage of a stretch of PyTorch code from its birth to its death. Needs torch, which is imported when the counter is made."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple


class Holding(NamedTuple):
    """Storages of one make that are alive together.

    Attributes:
        operator: what made them.
        dtype, shape: of the tensor that was seen first.
        num_bytes: of each.
        copies: how many.
    """

    operator: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    copies: int

    @property
    def total_bytes(self) -> int:
        """Of all."""
        return self.num_bytes * self.copies


class Storages:
    """Counts storages by weak references: bytes are alive as long as anything refers to them, as a caching allocator has it.

    Attributes:
        now: bytes alive.
        peak: the most since `mark`.
    """

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.operator = "before the step"
        self._alive: dict[int, tuple[Any, int]] = {}
        self._made: dict[int, tuple[str, str, tuple[int, ...]]] = {}
        self._watched: int | None = None
        self._caught: list[Holding] = []

    def counting(self) -> AbstractContextManager[Any]:
        """A context in which the outputs of every operator are seen."""
        from torch.utils._python_dispatch import TorchDispatchMode

        return _mode(TorchDispatchMode, self)

    def mark(self) -> None:
        """Begin a stretch: forget the peak."""
        self.peak = self.now

    def watch(self, num_bytes: int) -> None:
        """Take down who is alive when so many bytes are alive for the first time."""
        self._watched, self._caught = num_bytes, []

    def caught(self) -> list[Holding]:
        """Who was, when `watch` saw it; watches no more."""
        self._watched = None
        return self._caught

    def holdings(self) -> list[Holding]:
        """Who is alive, the largest first."""
        found = Counter((*self._made.get(key, ("?", "?", ())), size) for key, (_, size) in self._alive.items())
        holdings = [Holding(operator, dtype, shape, size, count) for (operator, dtype, shape, size), count in found.items()]
        return sorted(holdings, key=lambda holding: -holding.total_bytes)

    def see(self, tensor: Any) -> None:
        """A tensor's storage is alive; a distributed tensor's local part is."""
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass

        if is_traceable_wrapper_subclass(tensor):
            for name in tensor.__tensor_flatten__()[0]:
                self.see(getattr(tensor, name))
        elif hasattr(tensor, "untyped_storage"):
            storage = tensor.untyped_storage()
            if not self._knows(storage._cdata):  # noqa: SLF001 (the storage's identity has no other name)
                self._made[storage._cdata] = (self.operator, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))  # noqa: SLF001
                self._born(storage, storage.nbytes())

    @contextmanager
    def resizing(self) -> Iterator[None]:
        """A context in which storages that are resized in place count, too: FSDP frees and fills its gathered weights so."""
        import torch

        original: Callable[..., Any] = torch.UntypedStorage.resize_

        def resize(storage: Any, size: int) -> Any:
            result = original(storage, size)
            self._forget(storage._cdata)  # noqa: SLF001
            self._born(storage, size)
            return result

        torch.UntypedStorage.resize_ = resize
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = original

    # ------------------------------------------------------------------ inside
    def _knows(self, key: int) -> bool:
        return key in self._alive and self._alive[key][0]() is not None

    def _born(self, storage: Any, size: int) -> None:
        key = storage._cdata  # noqa: SLF001
        reference = weakref.ref(storage, lambda reference, key=key: self._died(key, reference))  # type: ignore[misc]
        self._alive[key] = (reference, size)
        self.now += size
        self.peak = max(self.peak, self.now)
        if self._watched is not None and self.now >= self._watched and not self._caught:
            self._caught = self.holdings()

    def _died(self, key: int, reference: Any) -> None:
        if key in self._alive and self._alive[key][0] is reference:
            self.now -= self._alive.pop(key)[1]

    def _forget(self, key: int) -> None:
        if key in self._alive:
            self.now -= self._alive.pop(key)[1]


def _mode(base: Any, storages: Storages) -> AbstractContextManager[Any]:
    from torch.utils._pytree import tree_leaves

    class Counting(base):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            storages.operator = func.name().partition("::")[2].partition(".")[0]
            for leaf in tree_leaves(out):
                storages.see(leaf)
            return out

    made: AbstractContextManager[Any] = Counting()
    return made
