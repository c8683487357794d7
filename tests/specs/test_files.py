"""Run files: YAML with lines, closed to what no honest file holds."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.specs.files import describe, parse_yaml, read_yaml


def refused(text: str) -> str:
    """What a refusal of a text says."""
    with pytest.raises(InputError) as error:
        parse_yaml(text, where="f")
    return str(error.value)


def test_every_key_has_its_line() -> None:
    document = parse_yaml("a: 1\nb:\n  c: [1, {d: 2}]\n\n  e: null\n", where="f")
    assert document.data == {"a": 1, "b": {"c": [1, {"d": 2}], "e": None}}
    assert document.lines == {("a",): 1, ("b",): 2, ("b", "c"): 3, ("b", "c", "1", "d"): 3, ("b", "e"): 5}


def test_merged_maps_give_what_is_not_said() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\nall:\n  <<: [*base, *more]\n  a: 5\n"
    assert parse_yaml(text, where="f").data["all"] == {"a": 5, "b": 2, "c": 4}


def test_json_is_yaml() -> None:
    assert parse_yaml('{"a": {"b": [1, 2.5, "x", true, null]}}', where="f").data == {"a": {"b": [1, 2.5, "x", True, None]}}


def test_an_alias_is_the_same_value() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: *x\n", where="f").data == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "f:2: names the key 'a' twice"),
        ("a:\n  b: 1\n  b: 2\n", "f:3: names the key 'a.b' twice"),
        ("1: 2\n", "f:1: has the key 1; keys are names"),
        ("? [a]\n: 1\n", "f:1: has the key"),
        ("<<: [{a: 1}, 2]\n", "f:1: merges with '<<' what is no map"),
        ("a: !!binary xx=\n", "f:1: "),
        ("a: b: c\n", "f:1: is not YAML"),
        ("", "f: is empty"),
        ("# nothing\n", "f: is empty"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_bomb_is_refused_at_once() -> None:
    names = [f"n{i}" for i in range(60)]
    text = "n0: &n0 [x, x]\n" + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 50)}]\n" for a, b in pairwise(names))
    began = time.perf_counter()
    assert "holds more than" in refused(text)
    assert time.perf_counter() - began < 1


def test_a_byte_order_mark_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(path).data == {"a": 1}


def test_values_in_messages_are_short() -> None:
    assert describe("x" * 1000) == f"'{'x' * 44}… (1002 characters)"
    assert [describe(value) for value in (None, True, [1], {"a": 1}, 5, "x")] == ["null", "true", "a list", "a map", "5", "'x'"]
