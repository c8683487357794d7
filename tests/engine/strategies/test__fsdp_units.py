"""FSDP1 around adapters: packed values that are spread, and what reentrant checkpoints leave behind; measured runs agree in test_accuracy."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run

LORA = {"r": 16, "target_modules": ["q_proj", "v_proj"]}


def mistral(**keys: Any) -> Estimate:
    """Mistral 7B with adapters on two ranks."""
    asked: dict[str, Any] = {"model": "mistral-7b", "lora": LORA, "recompute": "full", "sharding": {"engine": "fsdp1", "dp": 2}, "seq_len": 4096}
    return estimate(Run.model_validate(asked | keys))


def weights(answer: Estimate) -> int:
    """Bytes of weights between steps."""
    return sum(t.bytes for t in answer.instant("start").terms if t.path.startswith("weights/"))


def test_values_in_the_models_dtype_are_spread_scales_are_not() -> None:
    """Half of each value goes to the other rank: two values a byte, of 7.0 billion weights."""
    whole = mistral(quantization="nf4-dq", kbit_upcast=False)
    spread = mistral(quantization="nf4-dq", kbit_upcast=False, bnb_4bit_quant_storage="bfloat16")
    num_packed = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert weights(whole) - weights(spread) == num_packed // 2 // 2


def test_values_under_another_dtype_stay_whole() -> None:
    """uint8, bitsandbytes' default, is not the dtype of the layer's other weights."""
    assert weights(mistral(quantization="nf4")) == weights(mistral(quantization="nf4", bnb_4bit_quant_storage="float32"))


def test_reentrant_checkpoints_leave_inputs_and_gradients_of_frozen_layers() -> None:
    """At the end of backward all 32 layers' are there, twice batch · seq · hidden in bf16, and after it none."""
    plain, kept = mistral(), mistral(use_reentrant=True)
    grown = kept.instant("backward_peak").allocated_bytes - plain.instant("backward_peak").allocated_bytes
    assert 0 < grown <= 2 * 32 * 4096 * 4096 * 2
    held = [t.bytes for t in kept.instant("backward_peak").terms if t.path.endswith("inputs of layers that ran back")]
    assert held == [31 * 4096 * 4096 * 2] * 2
    assert kept.instant("optimizer_step").allocated_bytes == plain.instant("optimizer_step").allocated_bytes


def test_nothing_stays_where_all_weights_take_a_gradient() -> None:
    """FSDP waits for the gradients of weights there, not for those of inputs."""
    plain, kept = mistral(lora=None), mistral(lora=None, use_reentrant=True)
    assert [i.allocated_bytes for i in plain.ranks[0].instants] == [i.allocated_bytes for i in kept.ranks[0].instants]


@pytest.mark.parametrize("keys", [{"use_reentrant": True, "recompute": "none"}, {"bnb_4bit_quant_storage": "bfloat16"}])
def test_keys_without_what_they_speak_of_are_refused(keys: dict[str, Any]) -> None:
    """No checkpoints, no packed values."""
    with pytest.raises(InputError, match=next(iter(keys))):
        mistral(**keys)
