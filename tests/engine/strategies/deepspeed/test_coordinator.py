"""Which parameters stage 3 gathers and lets go of, on orders small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.strategies.deepspeed.coordinator import Coordinator, Limits, Param

EVERYTHING = 10**9


class Book:
    """A ledger that writes down what it is told, and what is alive."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.buffers, self.whole, self.most = 0, 0, 0

    def gather(self, params: Sequence[Param]) -> None:
        self._note("gather", params)
        size = sum(p.numel for p in params)
        if len(params) == 1:
            self.whole += size
        else:
            self.buffers += size
        self.most = max(self.most, self.whole)

    def copy_out(self, params: Sequence[Param]) -> None:
        self._note("copy", params)
        self.whole += sum(p.numel for p in params)
        self.most = max(self.most, self.whole)

    def drop_buffer(self, params: Sequence[Param]) -> None:
        self._note("drop", params)
        self.buffers -= sum(p.numel for p in params)

    def release(self, param: Param) -> None:
        self._note("release", [param])
        self.whole -= param.numel

    def _note(self, what: str, params: Sequence[Param]) -> None:
        self.lines.append(f"{what} {' '.join(str(p.index) for p in params)}")


def made(sizes: Sequence[int], *, keep: int = 0, trainable: bool = True) -> list[Param]:
    return [Param(i, size, trainable=trainable, persists=size <= keep) for i, size in enumerate(sizes)]


def run(params: Sequence[Param], limits: Limits, *, back: bool = True) -> Book:
    """One layer after the other, each with one parameter, and back."""
    order = [[p] for p in params] + ([[p] for p in reversed(params)] if back else [])
    book = Book()
    coordinator = Coordinator(order, limits=limits, ledger=book)
    coordinator.begin()
    for p in params:
        coordinator.fetch(str(p.index), [p])
        coordinator.release(str(p.index), [p])
    for p in reversed(params) if back else ():
        coordinator.fetch(str(p.index), [p], backward=True)
        coordinator.release(str(p.index), [p], backward=True)
    coordinator.end_backward()
    return book


def test_each_alone_where_nothing_is_kept_or_fetched_ahead() -> None:
    book = run(made([5, 5, 5]), Limits(prefetch=0, max_live=EVERYTHING, max_reuse=0), back=False)
    assert book.lines == ["gather 0", "release 0", "gather 1", "release 1", "gather 2", "release 2"]


def test_a_bundle_is_fetched_ahead_until_the_bucket_is_full() -> None:
    book = run(made([5, 5, 5, 5]), Limits(prefetch=6, max_live=EVERYTHING, max_reuse=0), back=False)
    assert book.lines[:4] == ["gather 0", "gather 1 2", "release 0", "copy 1 2"]
    assert book.buffers == 0


def test_what_is_live_leaves_less_room_ahead() -> None:
    few = run(made([5] * 8), Limits(prefetch=100, max_live=15, max_reuse=0), back=False)
    many = run(made([5] * 8), Limits(prefetch=100, max_live=EVERYTHING, max_reuse=0), back=False)
    assert few.most < many.most
    assert many.most == 35, "the first goes before the others arrive"


def test_the_last_layer_is_kept_for_backward() -> None:
    book = run(made([5, 5, 5]), Limits(prefetch=0, max_live=EVERYTHING, max_reuse=1))
    assert book.lines == ["gather 0", "release 0", "gather 1", "release 1", "gather 2", "release 2", "gather 1", "release 1", "gather 0", "release 0"]


def test_small_parameters_stay() -> None:
    book = run(made([1, 5, 1], keep=1), Limits(prefetch=0, max_live=EVERYTHING, max_reuse=0))
    assert book.whole == 2
    assert book.lines.count("gather 0") == 1


def test_one_by_one_where_asked_for() -> None:
    book = run(made([5, 5, 5]), Limits(prefetch=100, max_live=EVERYTHING, max_reuse=0, sequential=True), back=False)
    assert [line for line in book.lines if line.startswith("gather")] == ["gather 0", "gather 1", "gather 2"]


def test_frozen_weights_that_recomputation_fetched_stay_until_their_module_ran_back() -> None:
    inner, outer = made([5, 7], trainable=False)
    book = Book()
    coordinator = Coordinator([[outer], [inner], [outer], [inner]], limits=Limits(0, EVERYTHING, 0), ledger=book)
    coordinator.begin()
    for p in (outer, inner):
        coordinator.fetch(str(p.index), [p])
        coordinator.release(str(p.index), [p])
    coordinator.fetch("1", [outer], backward=True)
    coordinator.fetch("0", [inner], recompute=True)
    coordinator.release("0", [inner])
    assert book.whole == 12
    coordinator.release("1", [outer], backward=True)
    assert book.whole == 0


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=12),
    st.integers(0, 100),
    st.integers(1, 300),
    st.integers(0, 300),
    st.integers(0, 10),
)
def test_all_that_was_gathered_goes(sizes: list[int], prefetch: int, live: int, reuse: int, keep: int) -> None:
    params = made(sizes, keep=keep)
    book = run(params, Limits(prefetch, live, reuse))
    assert book.buffers == 0
    assert book.whole == sum(p.numel for p in params if p.persists)
    assert book.most <= sum(sizes)


@pytest.mark.parametrize(("reuse", "num"), [(0, 12), (10, 11), (11, 10), (EVERYTHING, 6)])
def test_more_reuse_gathers_less(reuse: int, num: int) -> None:
    params = made([5] * 6)
    gathers = [line for line in run(params, Limits(0, EVERYTHING, reuse)).lines if line.startswith("gather")]
    assert len(gathers) == num
