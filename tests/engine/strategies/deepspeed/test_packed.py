"""QLoRA at stage 3: packed values are cut over the ranks, scales are whole on each."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run

PACKED = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
"""Elements of Llama 7B that are packed: the linear layers of all layers."""


def answer(**keys: Any) -> Estimate:
    run = {"quantization": "nf4", "lora": {"r": 16}, "engine": "deepspeed", "zero": 3, "dp": 4, "seq_len": 512, "bnb_4bit_quant_storage": "bfloat16", **keys}
    return estimate(read_run("llama-7b", **run))


def held(found: Estimate, instant: str, path: str) -> int:
    return sum(t.bytes for t in found.instant(instant).terms if t.path == path)


@pytest.mark.parametrize("storage", ["uint8", "bfloat16"])
def test_values_are_cut_and_scales_are_not(storage: str) -> None:
    """Half a byte each, filed under any dtype; a scale of 4 bytes for 64 of them, and a table of 16 for each weight."""
    one, four = (answer(dp=n, bnb_4bit_quant_storage=storage) for n in (1, 4))
    scales = "weights/layers (scales)"
    assert held(one, "start", scales) == held(four, "start", scales) == PACKED // 16 + 32 * 7 * 16 * 4
    rest = held(one, "start", "weights/layers") - PACKED // 2
    assert held(four, "start", "weights/layers") == pytest.approx(PACKED // 8 + rest / 4, rel=1e-4)


def test_without_a_checkpoint_gathered_values_live_until_the_layer_runs_back() -> None:
    """bitsandbytes saves a view of the weight; under a checkpoint only what the coordinator keeps is there: max_live_parameters of any dtype."""
    whole, again = answer(recompute="none"), answer(recompute="full")
    assert held(whole, "forward_end", "weights/gathered") >= PACKED // 2
    assert held(again, "forward_end", "weights/gathered") <= 2.01 * 10**9


def test_the_model_is_whole_on_every_rank_before_it_is_cut() -> None:
    """A quantised model is not built under zero.Init, whatever zero3_init_flag says."""
    assert answer().instant("initialize").allocated_bytes >= PACKED // 2 + PACKED // 16 + 2 * 2 * 32000 * 4096


def test_other_packed_weights_are_refused() -> None:
    with pytest.raises(InputError, match="what stage 3 makes of weights in int8 is not known; use nf4, or zero 2"):
        answer(quantization="int8", bnb_4bit_quant_storage="uint8")
