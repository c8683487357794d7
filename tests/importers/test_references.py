"""References in OmegaConf's manner."""

from __future__ import annotations

import pytest

from memcalc.errors import InputError
from memcalc.importers.references import resolved
from memcalc.importers.source import parse_source


def values(text: str, **env: str) -> tuple[dict[str, object], list[str]]:
    """What a text holds once resolved, and the places that could not be."""
    source, unresolved = resolved(parse_source(text, name="a.yaml"), env)
    return dict(source.data), [".".join(item.place) for item in unresolved]


def test_a_reference_has_the_kind_of_what_it_refers_to() -> None:
    assert values("a: {b: 3}\nc: ${a.b}\nd: n${a.b}\ne: ${c}\n")[0] == {"a": {"b": 3}, "c": 3, "d": "n3", "e": 3}


def test_a_leading_dot_is_the_map_that_holds_it() -> None:
    assert values("a: {b: 3, c: '${.b}', d: {e: '${..b}'}}")[0] == {"a": {"b": 3, "c": 3, "d": {"e": 3}}}


def test_select_falls_back_to_its_default_which_may_hold_references() -> None:
    assert values("a: ${oc.select:b.c,512}\nd: ${oc.select:x,${oc.select:y,null}}\n")[0] == {"a": 512, "d": None}


def test_the_environment_is_what_is_given() -> None:
    assert values("a: ${oc.env:HOME}\nb: ${oc.env:N,4}\n") == ({"b": 4}, ["a"])
    assert values("a: ${oc.env:N}\n", N="8")[0] == {"a": "8"}


def test_what_leads_nowhere_is_taken_out_and_listed() -> None:
    assert values("a: ${b.c}\nd: ${eval:1}\ne: ???\nf: 1\n") == ({"f": 1}, ["a", "d", "e"])


@pytest.mark.parametrize("text", ["a: ${b}\nb: ${a}\n", "a: ${a}\n", "a: x${b}\nb: ${c}\nc: ${a}\n", "a: ${b}\nb: ['${a}']\n"])
def test_a_circle_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(InputError, match=r"a.yaml:\d+: refers to itself"):
        values(text)


def test_references_that_double_are_refused() -> None:
    text = "a0: xxxxxxxxxxxxxxxx\n" + "".join(f"a{i}: ${{a{i - 1}}}${{a{i - 1}}}\n" for i in range(1, 40))
    with pytest.raises(InputError, match=r"too many references"):
        values(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${mul:${n},3}", 24),
        ("${multiply:2,${n},2}", 32),
        ("${add:${n},-1}", 7),
        ("${sum:${n},1,1}", 10),
        ("${div:${n},4}", 2),
        ("${div:${n},16}", 0.5),
        ("${floor_div:${n},3}", 2),
        ("${eval:'${n} * 2'}", 16),
        ("${eval: ${n}//3}", 2),
    ],
)
def test_references_calculate_with_whole_numbers(text: str, value: float) -> None:
    assert values(f"n: 8\na: {text!r}\n" if "'" not in text else f'n: 8\na: "{text}"\n')[0]["a"] == value


@pytest.mark.parametrize("text", ["${div:1,0}", "${eval:__import__}", "${mul:a,b}", "${mul:1,2,3,4,5}"])
def test_what_is_no_sum_stays_unknown(text: str) -> None:
    assert values(f"a: {text!r}\n")[1] == ["a"]
