"""Gradients of tensors that several blocks use."""

from __future__ import annotations

from typing import Any

from memcalc.engine.flow import Flow, Profile
from memcalc.engine.plan import Part
from memcalc.engine.sums import with_sums
from memcalc.specs.model import Axis, Block, Component
from memcalc.tape.span import Span

FLOW = Flow((Axis("tokens", 4),), "bfloat16", requires_grad=True)


class Recorder:
    """Stands for the recording of one block; remembers how it was recorded anew."""

    def __init__(self, name: str, *, repeat: int = 1, grades: str = "", makes: str = "") -> None:
        self.asked: list[dict[str, frozenset[str]]] = []
        self.made = Profile(Span(), Span(), Span(), FLOW, shared=dict.fromkeys(makes.split(), FLOW), grades=frozenset(grades.split()))
        self.part = Part(Block(name, Component(), repeat), self.made, ())

    def __call__(self, **how: Any) -> Profile:
        self.asked.append(how)
        return self.made


def parts_of(*recorders: Recorder) -> list[tuple[str, int]]:
    """Paths and repetitions of the parts that come out."""
    return [(part.block.path, part.block.repeat) for part in with_sums([r.part for r in recorders], list(recorders))]


def test_the_last_user_makes_the_gradient_and_others_add_to_it() -> None:
    """Of a run of equal layers the last one stands apart."""
    front, layers = Recorder("front", makes="states"), Recorder("layers", repeat=5, grades="states")
    assert parts_of(front, layers) == [("front", 1), ("layers", 4), ("layers", 1)]
    assert layers.asked == [{"graded": frozenset({"states"})}]
    assert front.asked == []


def test_a_run_whose_gradient_meets_a_later_one_stays_whole() -> None:
    middle, last = Recorder("middle", repeat=5, grades="states"), Recorder("last", grades="states")
    assert parts_of(Recorder("front", makes="states"), middle, last) == [("front", 1), ("middle", 5), ("last", 1)]
    assert middle.asked == [{"graded": frozenset({"states"}), "alone": frozenset()}]
    assert last.asked == []


def test_no_gradient_comes_of_what_no_later_block_uses() -> None:
    """A stack of one layer makes a bias for itself."""
    only = Recorder("only", makes="bias")
    assert parts_of(only, Recorder("next")) == [("only", 1), ("next", 1)]
    assert only.asked == [{"graded": frozenset(), "alone": frozenset({"bias"})}]
