"""The keys of a run, read off its fields."""

from __future__ import annotations

from memcalc.specs.fields import Leaf, Section, find, flag_of, flags, run_keys


def test_kinds_follow_from_the_annotations() -> None:
    kinds = {leaf.key: leaf.kind for leaf in run_keys().leaves()}
    expected = {
        "model": "text", "task": "choice", "micro_batch": "int", "dtype": "dtype", "optimizer_foreach": "bool", "momentum": "float",
        "sharding.tp": "int", "sharding.deepspeed": "map", "sharding.zero": "int", "lora.target_modules": "list", "hardware.gpu": "text",
    }  # fmt: skip
    assert {key: kinds[key] for key in expected} == expected
    assert "any" not in kinds.values(), "a kind that only pydantic can check makes every cold start build its validator"


def test_every_flag_is_one_key() -> None:
    found = [node.flag for node in map(find, {node.path for node in flags().values()}) if node]
    assert len(found) == len(set(found))


def test_flags_of_sharding_and_hardware_bear_the_bare_name() -> None:
    assert (flag_of(("sharding", "tp")), flag_of(("hardware", "gpus")), flag_of(("lora", "r")), flag_of(("seq_len",))) == ("tp", "gpus", "lora-r", "seq-len")


def test_a_place_is_found() -> None:
    assert isinstance(find(("sharding", "tp")), Leaf)
    assert isinstance(find(("lora",)), Section)
    assert find(("sharding", "nope")) is None


def test_every_key_says_what_it_is_and_accepts() -> None:
    assert [leaf.key for leaf in run_keys().leaves() if not leaf.help or not leaf.accepts] == []
