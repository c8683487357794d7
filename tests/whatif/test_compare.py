"""Comparisons as data."""

from __future__ import annotations

import pytest

from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.read import read_run
from memcalc.whatif.compare import compare, flat, variant


def test_variants_as_people_write_them() -> None:
    assert variant("zero=3,gpus=4") == {"zero": "3", "gpus": "4"}
    assert variant(" tp = 2 , micro-batch=1 ") == {"tp": "2", "micro_batch": "1"}
    assert variant("lora,lora-target-modules=q_proj,v_proj,sp") == {"lora": True, "lora_target_modules": "q_proj,v_proj", "sp": True}
    assert variant("no-lora") == {"lora": False}
    assert variant("sharding.tp=2") == {"tp": "2"}


@pytest.mark.parametrize("text", ["", "nothing", ",", "tp"])
def test_what_changes_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a variant"):
        variant(text)


def test_runs_of_every_kind_can_be_compared() -> None:
    found = compare(["llama-7b", {"model": "llama-7b", "micro_batch": 2}, read_run("llama-13b")], seq_len=256)
    assert found.names == ("llama-7b", "llama-7b (2)", "llama-13b (3)")
    assert found.changes(1) == [("micro_batch", 1, 2)]
    assert found.changes(2)[0] == ("model", "llama-7b", "llama-13b")
    assert found.difference_bytes(0) == 0
    assert found.difference_bytes(2) > 0


def test_terms_sum_to_each_peak() -> None:
    found = compare({"a": "llama-7b", "b": {"model": "llama-7b", "sharding": {"tp": 2}}}, seq_len=256)
    for i, estimate in enumerate(found.estimates):
        assert sum(values[i] for values in found.terms().values()) == estimate.peak.allocated_bytes


def test_one_run_is_no_comparison() -> None:
    with pytest.raises(InputError, match="at least two runs"):
        compare(["llama-7b"])
    with pytest.raises(UnknownNameError):
        compare(["llama-7b", "llama-13b"], nope=1)


def test_keys_are_named_as_flags() -> None:
    assert flat({"sharding": {"tp": 2}, "lora": {"r": 4}, "hardware": {"gpu": "x"}, "seq_len": 1}) == {"tp": 2, "lora.r": 4, "gpu": "x", "seq_len": 1}
