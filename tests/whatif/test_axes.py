"""Lists, ranges and factors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.errors import InputError
from memcalc.whatif.axes import axis_of, is_axis, parse_axis, split_axes


@given(st.integers(0, 10_000), st.integers(0, 500), st.integers(1, 60))
def test_a_range_is_pythons_with_its_end(first: int, more: int, step: int) -> None:
    assert parse_axis(f"{first}:{first + more}:{step}") == tuple(range(first, first + more + 1, step))


@given(st.integers(1, 100), st.integers(0, 20), st.integers(2, 7))
def test_a_factor_multiplies_up_to_the_end(first: int, times: int, factor: int) -> None:
    values = parse_axis(f"{first}:{first * factor**times}:x{factor}")
    assert values == tuple(first * factor**i for i in range(times + 1))


def test_parts_add_up_and_each_value_is_there_once() -> None:
    assert parse_axis("4,1:4,none") == (4, 1, 2, 3, "none")


@pytest.mark.parametrize("text", ["1,,2", "4:1", "1:8:0", "1:8:x1", "0:8:x2", "a:b", "1:2:3:4", "1:-3", "1:99999999", ""])
def test_what_is_no_axis_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_axis(text, where="--tp")


def test_a_value_that_the_key_does_not_accept_is_refused() -> None:
    with pytest.raises(InputError, match="one of none, selective, full"):
        axis_of("recompute", "none,sometimes", where="--recompute")


@pytest.mark.parametrize(
    ("name", "value", "several"),
    [
        ("tp", "1,2", True),
        ("tp", "1:4", True),
        ("tp", "4", False),
        ("optimizer", "sgd,adamw_torch", True),
        ("lora-target-modules", "q_proj,v_proj", False),
        ("pipeline-model-parallel-layout", "E,t|t,L", False),
        ("gpu", "a:b", False),
        ("sp", True, False),
    ],
)
def test_only_keys_that_hold_one_value_are_swept(name: str, value: str | bool, several: bool) -> None:
    assert is_axis(name, value) is several
    assert (name in split_axes({name: value})[0]) is several
