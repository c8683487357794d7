"""Freeze tuning: the last layers alone are trained."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.models.freeze import freeze
from memcalc.models.read import read_model
from memcalc.specs.run import Run

LAYER = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096


def run(**keys: Any) -> Estimate:
    """An answer for Llama 7B."""
    return estimate(Run.model_validate({"model": "llama-7b", "seq_len": 512, **keys}))


def test_no_parameter_is_lost() -> None:
    """The blocks are the same, under other paths."""
    plain = read_model("llama-7b")
    model = freeze(plain, 3)
    assert model.num_params == plain.num_params
    assert [(b.path, b.repeat) for b in model.blocks if b.role == "layer"] == [("frozen layers", 29), ("layers", 3)]


def test_states_and_gradients_are_those_of_the_last_layers() -> None:
    """In bf16, 4 and 2 bytes of each parameter."""
    answer = run(trainable_layers=2)
    assert answer.model.trainable_params == 2 * LAYER
    assert sum(t.bytes for t in answer.instant("start").terms if t.path == "optimizer/moments") == 4 * 2 * LAYER
    assert sum(t.bytes for t in answer.instant("optimizer_step").terms if t.path.startswith("gradients/")) == 2 * 2 * LAYER


def test_layers_below_save_nothing() -> None:
    """No gradient goes there, so that activations are those of two layers of 32."""
    kept = [sum(t.bytes for t in a.instant("forward_end").terms if t.path.startswith("activations/layers")) for a in (run(trainable_layers=2), run())]
    assert kept[0] == pytest.approx(kept[1] / 16, rel=0.05)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"trainable_layers": 33}, "trainable_layers: llama-7b has 32 layers, not 33"),
        ({"trainable_layers": 2, "lora": {}}, "trainable_layers: adapters freeze all layers"),
        ({"trainable_layers": 2, "sharding": {"engine": "deepspeed", "zero": 2, "dp": 2}}, "trainable_layers: freezing layers is known for"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], message: str) -> None:
    """With what is accepted."""
    with pytest.raises(InputError) as raised:
        run(**keys)
    assert str(raised.value).startswith(message)
