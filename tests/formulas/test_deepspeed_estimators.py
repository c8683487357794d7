"""DeepSpeed's estimators print what DeepSpeed prints."""

from __future__ import annotations

import pytest

from memcalc.formulas.deepspeed_estimators import zero2_needs, zero3_needs
from memcalc.units import GiB, MiB

T5_3B = 2851 * 10**6  # deepspeed docs/code-docs/source/memory.rst


def gib(needs: tuple[int, int]) -> list[float]:
    return [round(n / GiB, 2) for n in needs]


def test_stage_2_of_the_documentation() -> None:
    assert gib(zero2_needs(T5_3B, gpus_per_node=8, offload=True)) == [127.45, 5.31]
    assert gib(zero2_needs(T5_3B, gpus_per_node=8, offload=False)) == [127.45, 11.28]


@pytest.mark.parametrize(
    ("optimizer", "params", "init", "printed"),
    [
        (True, True, True, [71.69, 0.12]),
        (True, True, False, [127.45, 0.12]),
        (True, False, True, [63.72, 0.78]),
        (True, False, False, [127.45, 0.78]),
        (False, False, True, [1.43, 6.09]),
        (False, False, False, [127.45, 6.09]),
    ],
)
def test_stage_3_of_the_documentation(optimizer: bool, params: bool, init: bool, printed: list[float]) -> None:
    needs = zero3_needs(T5_3B, largest_layer_params=32 * 10**6, gpus_per_node=8, offload_optimizer=optimizer, offload_params=params, zero_init=init)
    assert gib(needs) == printed


def test_stage_3_of_t5_large_on_four_cards() -> None:
    of = {"largest_layer_params": 32_899_072, "gpus_per_node": 4}
    devices = [
        zero3_needs(737_668_096, offload_optimizer=False, **of).device_bytes,
        zero3_needs(737_668_096, offload_optimizer=True, offload_params=True, **of).device_bytes,
        zero3_needs(737_668_096, offload_optimizer=True, **of).device_bytes,
    ]
    assert [n // MiB for n in devices] == [3291, 125, 477]


def test_stage_3_of_issue_4527() -> None:
    of = {"largest_layer_params": 131_000_000, "gpus_per_node": 4}
    assert gib(zero3_needs(6_805_000_000, offload_optimizer=True, offload_params=True, **of)) == pytest.approx([171.13, 0.49], abs=0.02)
    assert gib(zero3_needs(6_805_000_000, offload_optimizer=True, **of)) == pytest.approx([152.11, 3.66], abs=0.02)
    assert gib(zero3_needs(6_805_000_000, offload_optimizer=False, **of)) == pytest.approx([2.93, 29.01], abs=0.02)


def test_live_tables_of_t5_3b() -> None:
    """As printed for the model itself on 8 cards (deepspeedai/DeepSpeed#965 and #1536): 2,851,598,336 parameters, 32,128 * 1024 in the largest layer."""
    params, of = 2_851_598_336, {"largest_layer_params": 32_128 * 1024, "gpus_per_node": 8}
    assert gib(zero2_needs(params, gpus_per_node=8, offload=True)) == [127.48, 5.31]
    assert gib(zero3_needs(params, offload_optimizer=True, offload_params=True, **of)) == [71.71, 0.12]
    assert gib(zero3_needs(params, offload_optimizer=True, **of)) == [63.74, 0.79]
    assert gib(zero3_needs(params, offload_optimizer=False, **of)) == [1.47, 6.1]


def test_the_old_print_counted_whole_gradients() -> None:
    """4 + 16/N bytes a parameter at stage 2 (15.93 GiB), where 2 + 14/N to 2 + 18/N are held."""
    assert round((4 * T5_3B + 16 * T5_3B / 8) / GiB, 2) == 15.93
    least, most = ((2 + rate / 8) * T5_3B / GiB for rate in (14, 18))
    assert (round(least, 2), round(most, 2)) == (9.96, 11.28)
    assert gib(zero2_needs(T5_3B, gpus_per_node=8, offload=False))[1] == round(most, 2)
