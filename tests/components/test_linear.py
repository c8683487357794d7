"""Linear layers: names, shapes and cuts of their weights."""

from __future__ import annotations

from memcalc.components import Conv1D
from memcalc.specs.model import Axis, Component

H, WIDE = Axis("hidden_size", 8), Axis("intermediate_size", 12)


def shapes(component: Component) -> dict[str, tuple[int, ...]]:
    """Path and shape of each weight."""
    return {path: tuple(axis.size for axis in weight.shape) for path, weight in component.weights()}


def test_a_conv1d_holds_its_weight_the_other_way_round_and_is_cut_there() -> None:
    """GPT-2's (in, out); columns are its second axis, rows its first."""
    column, row = (Conv1D("c", H, WIDE, bias=True, split=split) for split in ("column", "row"))
    assert shapes(column) == {"weight": (8, 12), "bias": (12,)}
    assert [weight.cuts for weight in column.own_weights()] == [(("column", 1),), (("column", 0),)]
    assert [weight.cuts for weight in row.own_weights()] == [(("row", 0),), ()]
