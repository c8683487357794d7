"""The parser of command lines."""

from __future__ import annotations

import pytest

from memcalc.cli.shell.command import Argument, Command, Given, Option
from memcalc.cli.shell.parse import parse
from memcalc.errors import InputError

OPTIONS = (
    Option("size", "", metavar="N", short="s", aliases=("length",)),
    Option("kind", "", metavar="K", choices=("a", "b")),
    Option("names", "", metavar="NAMES", repeatable=True),
    Option("on", "", negatable=True),
    Option("loud", "", short="l"),
)
COMMAND = Command(lambda given: 0, "", (Argument("THING", "", required=True), Argument("OTHER", "")), lambda: OPTIONS)


def given(*words: str) -> Given:
    """A parsed command line."""
    return parse(COMMAND, "do", words)


@pytest.mark.parametrize("words", [("--size", "3"), ("--size=3",), ("-s", "3"), ("-s3",), ("--length", "3"), ("--SIZE", "3")])
def test_spellings_of_a_value(words: tuple[str, ...]) -> None:
    assert given("x", *words).flags == {"size": "3"}


def test_switches_go_on_and_off() -> None:
    assert given("x", "--on", "-l").flags == {"on": True, "loud": True}
    assert given("x", "--no-on").flags == {"on": False}
    assert given("x", "--on=false").flags == given("--on", "false", "x").flags == {"on": False}
    assert given("--on", "True", "x").flags == {"on": True}
    assert given("--on", "x", "true").arguments == ("x", "true")


def test_a_flag_has_one_value_and_lists_add_up() -> None:
    assert given("x", "--size", "1", "--size=1").text("size") == "1"
    assert given("x", "--names", "a,b", "--names", "c").text("names") == "a,b,c"


def test_arguments_stand_anywhere_and_after_two_dashes() -> None:
    assert given("--size", "1", "x", "y").arguments == ("x", "y")
    assert given("--", "--size", "y").arguments == ("--size", "y")


def test_a_negative_number_is_a_value() -> None:
    assert given("x", "--size", "-3").text("size") == "-3"
    assert given("-3").arguments == ("-3",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x", "--sise", "1"), "unknown option '--sise'; did you mean --size"),
        (("x", "-q"), "unknown option '-q'"),
        (("x", "--size"), "--size: needs a value"),
        (("x", "--size", "--on"), "--size: needs a value"),
        (("x", "--kind", "c"), "--kind: 'c' is not known; accepted: a, b"),
        (("x", "--size", "1", "--size", "2"), "--size: is given twice, as 1 and 2"),
        (("x", "--on", "--no-on"), "--no-on: is given twice, as on and off"),
        (("x", "--size", ""), "--size: is given nothing"),
        (("x", "--loud=maybe"), "--loud: is a switch"),
        (("x", "--no-loud"), "unknown option '--no-loud'"),
        ((), "do: THING is missing"),
        (("x", "y", "z"), "'z' is one argument too many"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError) as refused:
        given(*words)
    assert said in str(refused.value)
