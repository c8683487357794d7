"""Keys that change nothing are said to."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.effect import KNOBS, ignored_knobs
from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run, ShardingSpec


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"recompute": "selective"}, "recompute: transformers' own checkpointing takes whole layers"),
        ({"sharding": {"sp": True, "tp": 2}}, "sharding.sp: transformers' modules have no sequence parallelism"),
        ({"code": "megatron", "sharding": {"sp": True}}, "sharding.sp: sequence parallelism splits over the tensor-parallel ranks"),
        ({"offload": {"optimizer": "cpu"}}, "offload.optimizer: engine ddp keeps its optimizer on the card"),
    ],
)
def test_what_cannot_be_given_is_refused(keys: dict[str, Any], message: str) -> None:
    """Rather than an answer in which the key was left out."""
    with pytest.raises(InputError) as raised:
        estimate(Run.model_validate({"model": "llama-7b", "seq_len": 128, **keys}))
    assert str(raised.value).startswith(message)


def test_another_engines_knob_is_listed_as_ignored() -> None:
    """Given under ddp, fsdp2's knob is read and cannot be used."""
    answer = estimate(Run.model_validate({"model": "llama-7b", "seq_len": 128, "sharding": {"reshard_after_forward": False}}))
    assert answer.ignored == ("sharding.reshard_after_forward: engine ddp has no such knob",)


def test_every_knob_is_a_key_of_the_run_file() -> None:
    """And engines' own keys that nobody was told about are found."""
    assert set(KNOBS) <= set(ShardingSpec.model_fields)
    assert ignored_knobs(Run.model_validate({"model": "m"}), "ddp") == ()
