"""A run from a dict, a file, keyword arguments, flags, or several of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.fields import run_keys
from memcalc.specs.read import Layer, file_layer, flag_layer, key_layer, merged, read_run
from memcalc.specs.run import Run, ShardingSpec


def refused(*arguments: Any, **keys: Any) -> str:
    """What a refusal says."""
    with pytest.raises(InputError) as error:
        read_run(*arguments, **keys)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_keywords_are_flags_or_keys() -> None:
    run = read_run("llama-7b", tp=2, gpu="h100", lora_r=4, sharding={"zero": 1})
    assert (run.model, run.sharding.tp, run.sharding.zero, run.hardware.gpu) == ("llama-7b", 2, 1, "h100")
    assert run.lora is not None
    assert run.lora.r == 4


def test_keywords_win_over_the_source() -> None:
    assert read_run({"model": "a", "seq_len": 1, "sharding": {"tp": 2, "pp": 2}}, seq_len=5, tp=4).seq_len == 5
    run = read_run({"model": "a", "sharding": {"tp": 2, "pp": 2}}, tp=4)
    assert (run.sharding.tp, run.sharding.pp) == (4, 2)
    assert read_run(Run(model="a", sharding=ShardingSpec(pp=2)), tp=4).sharding == ShardingSpec(pp=2, tp=4)


def test_a_dict_is_laid_out_as_a_run_file() -> None:
    assert refused({"model": "a", "tp": 2}) == "unknown key 'tp'; did you mean sharding.tp?"


def test_the_same_run_however_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: llama-7b\nsharding: {tp: 2}\nlora: {}\n")
    runs = [
        read_run({"model": "llama-7b", "sharding": {"tp": 2}, "lora": {}}),
        read_run(path),
        read_run("llama-7b", tp=2, lora=True),
        merged([Layer({"model": "llama-7b"}), flag_layer({"tp": "2", "lora": True})]),
        Run.model_validate({"model": "llama-7b", "sharding": {"tp": 2}, "lora": {}}),
    ]
    assert all(run == runs[0] for run in runs)
    assert all(run.model_dump() == runs[0].model_dump() for run in runs)


def test_a_run_read_is_frozen_and_closed() -> None:
    run = read_run("llama-7b")
    with pytest.raises(ValidationError):
        run.model = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Run.model_validate({"model": "a", "nope": 1})


def test_an_absent_section_is_null_or_false() -> None:
    assert read_run({"model": "a", "lora": {"r": 4}}, lora=False).lora is None
    assert read_run({"model": "a", "lora": None}).lora is None
    assert read_run({"model": "a", "lora": False}, lora_r=2).lora is not None
    assert read_run({"model": "a", "sharding": None}).sharding == ShardingSpec()


def test_a_flag_over_a_file_is_named_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: a\nsharding:\n  tp: 2\n")
    with pytest.raises(InputError) as error:
        merged([file_layer(path), flag_layer({"tp": "x"})])
    assert str(error.value) == "--tp is 'x'; accepted: a whole number from 1 to 2^20"


def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean micro_batch"):
        key_layer({"micro_batsh": 1})
    assert "did you mean sharding" in refused({"model": "a", "shardin": {}})
    assert "unknown key 'sharding.zer0'; did you mean sharding.zero" in refused({"model": "a", "sharding": {"zer0": 1}})


@pytest.mark.parametrize("value", [0, -1, 2**41, 1.5, "x", "", True, [], {}, float("nan"), float("inf"), "1e400", "0x10", None])
def test_what_is_no_count_is_refused(value: object) -> None:
    if value is not None:
        assert "tp is " in refused("a", tp=value)
    assert "accepted: a whole number from 1 to 2^40" in refused({"model": "a", "micro_batch": value})


@pytest.mark.parametrize(("value", "count"), [("5e8", 500_000_000), (5e8, 500_000_000), ("1_000", 1000), (" 7 ", 7), (7.0, 7), (2**40, 2**40)])
def test_counts_as_people_write_them(value: object, count: int) -> None:
    assert read_run("a", micro_batch=value).micro_batch == count


@pytest.mark.parametrize(("value", "number"), [("1e-4", 1e-4), (0, 0), ("0.5", 0.5), (".5", 0.5)])
def test_numbers_as_people_write_them(value: object, number: float) -> None:
    assert read_run("a", momentum=value).momentum == number


def test_words_as_people_write_them() -> None:
    assert read_run("a", dtype="torch.bf16").dtype == "bfloat16"
    assert read_run("a", recompute=False).recompute == "none"
    assert read_run("a", autocast=False).autocast is None
    assert read_run("a", autocast="none").autocast is None
    assert read_run("a", sp="yes").sharding.sp is True
    assert read_run("a", lora_target_modules="q_proj, v_proj").lora == read_run("a", lora={"target_modules": ["q_proj", "v_proj"]}).lora


def test_a_long_or_nested_value_is_not_spelt_out() -> None:
    assert len(refused("a", tp="x" * 10_000)) < 200
    assert "tp is a map" in refused("a", tp={"a": "x" * 10_000})


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3))


def taken(data: dict[str, Any]) -> Run | None:
    """The run that data makes, or None where it is refused, in one line."""
    try:
        return read_run(data)
    except InputError as error:
        lines = str(error).splitlines()
    assert len(lines) == 1
    return None


@given(VALUES, st.sampled_from([leaf.path for leaf in run_keys().leaves()]))
def test_any_value_is_taken_or_refused_in_one_line(value: object, path: tuple[str, ...]) -> None:
    data: Any = value
    for name in reversed(path):
        data = {name: data}
    run = taken({"model": "a"} | data)
    assert run is None or Run.model_validate(run.model_dump()) == run


@given(st.dictionaries(st.text(max_size=10), st.integers(), max_size=3))
def test_any_keys_are_taken_or_refused_in_one_line(keys: dict[str, int]) -> None:
    taken({"model": "a", **keys})


def test_what_pydantic_alone_knows_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memcalc.specs.read._more_to_check", lambda section: True)
    assert read_run("a", tp=2) == read_run({"model": "a", "sharding": {"tp": 2}})
    monkeypatch.setattr("memcalc.specs.read.coerce", lambda leaf, value, *, name, where: value)
    assert refused("a", tp=0) == "tp is 0; accepted: a whole number from 1 to 2^20"
