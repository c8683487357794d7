"""Inputs that each layer has of its own, as Gemma 3n's and Gemma 4's files describe them."""

from __future__ import annotations

from collections.abc import Callable

from memcalc.components import Linear, RMSNorm
from memcalc.components.layer_inputs import InputTables, LayerInputs
from memcalc.models.config import Config
from memcalc.specs.model import Axis

SMALL = "hidden_size_per_layer_input"


def tables(config: Config, hidden: Axis, num_layers: int, norm: Callable[[Axis], RMSNorm], *, in_place: bool = False) -> InputTables | None:
    """The table of inputs for all layers, where there is one.

    Args:
        config: the file.
        hidden: the model's width.
        num_layers: how many have a share of it.
        norm: makes a norm of a width.
        in_place: see `InputTables`.
    """
    small = config.int(SMALL, minimum=0)
    if not small:
        return None
    rows = Axis("vocab_size_per_layer_input", config.int("vocab_size_per_layer_input"))
    every = Axis(f"num_hidden_layers * {SMALL}", num_layers * small)
    return InputTables(rows, Linear("per_layer_model_projection", hidden, every), norm(Axis(SMALL, small)), in_place)


def share(config: Config, hidden: Axis, norm: RMSNorm, activation: str) -> LayerInputs | None:
    """What a layer adds at its end."""
    small = config.int(SMALL, minimum=0)
    if not small:
        return None
    axis = Axis(SMALL, small)
    return LayerInputs(Linear("per_layer_input_gate", hidden, axis), Linear("per_layer_projection", axis, hidden), norm, activation)
