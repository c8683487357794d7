"""Optimizers that an engine cannot run with, and keys that they do not read."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run


def run(**keys: Any) -> Any:
    """An answer for Llama 7B."""
    return estimate(Run.model_validate({"model": "llama-7b", "seq_len": 64, **keys}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"optimizer": "adamw_8bits"}, "optimizer: unknown optimizer 'adamw_8bits'"),
        ({"optimizer": "lomo", "sharding": {"dp": 2}}, "optimizer: lomo steps in backward, before gradients could be reduced"),
        ({"optimizer": "galore_adamw", "sharding": {"engine": "fsdp1", "dp": 2}}, "optimizer: galore_adamw needs whole matrices"),
        ({"optimizer": "muon", "sharding": {"engine": "deepspeed", "zero": 2, "dp": 2}}, "optimizer: muon needs whole matrices"),
        ({"optimizer": "galore_adamw_layerwise", "grad_accum": 2}, "grad_accum: galore_adamw_layerwise steps in backward and adds up no gradients"),
        ({"optimizer": "adafactor", "code": "megatron"}, "optimizer: engine megatron has optimizers of its own"),
        ({"optimizer": "galore_adamw", "optim_target_modules": ["q_prj"]}, "optim_target_modules: unknown target module 'q_prj'"),
    ],
)
def test_what_does_not_go_together_is_an_error(keys: dict[str, Any], message: str) -> None:
    """Rather than an answer for another optimizer."""
    with pytest.raises(InputError) as raised:
        run(**keys)
    assert str(raised.value).startswith(message)


def test_an_unknown_optimizer_names_the_near_ones() -> None:
    """Among them the one that was meant."""
    with pytest.raises(InputError, match="adamw_8bit"):
        run(optimizer="adamw_8bits")


def test_another_optimizers_key_is_listed_as_ignored() -> None:
    """A rank means nothing to AdamW."""
    assert "optimizer_rank: adamw_torch has no such knob" in run(optimizer_rank=8).ignored
