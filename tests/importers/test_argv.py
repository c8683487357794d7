"""Words of a command line as keys and values."""

from __future__ import annotations

from memcalc.importers.argv import leading, split, variables


def test_variables_in_front_are_taken_off() -> None:
    assert variables(["env", "A=1", "B=x=y", "torchrun", "C=3"]) == ({"A": "1", "B": "x=y"}, ["torchrun", "C=3"])


def test_flags_take_what_follows_until_the_next() -> None:
    words = split(["--a", "1", "--b=2", "--c", "--d", "x", "y", "--e", "-1", "k.l=m", "-f", "3"])
    assert [(key, value) for key, value, _ in words.given] == [("a", "1"), ("b", "2"), ("c", True), ("d", ["x", "y"]), ("e", "-1"), ("k.l", "m"), ("f", "3")]


def test_a_configuration_behind_a_value_stands_alone() -> None:
    words = split(["--nproc-per-node", "2", "train.yaml", "--config", "a.yaml", "--data", "a.json", "b.json"])
    assert words.plain == ("train.yaml",)
    assert words.get("config") == "a.yaml"
    assert words.get("data") == ["a.json", "b.json"]


def test_overrides_stand_alone() -> None:
    words = split(["train.yaml", "+a.b=1", "~c=2", "d=[1, 2]"])
    assert words.plain == ("train.yaml",)
    assert [(key, value) for key, value, _ in words.given] == [("a.b", "1"), ("c", "2"), ("d", "[1, 2]")]


def test_a_launcher_ends_where_its_script_begins() -> None:
    own, rest = leading(["--nnodes=2", "--standalone", "--nproc", "8", "train.py", "--nproc", "9"], switches=frozenset(["standalone"]))
    assert own.get("nproc") == "8"
    assert rest == ["train.py", "--nproc", "9"]
    assert leading(["--nproc", "8", "-m", "pkg.mod", "--x"], switches=frozenset())[1] == ["-m", "pkg.mod", "--x"]


def test_variables_of_several_arguments_are_no_values() -> None:
    words = split(["--bf16", "$EXTRA_ARGS", "--model", "$MODEL", "$MORE", "--optim", "$OPTIMIZER"])
    assert [(key, value) for key, value, _ in words.given] == [("bf16", True), ("model", "$MODEL"), ("optim", "$OPTIMIZER")]
    assert words.plain == ("$EXTRA_ARGS", "$MORE")
