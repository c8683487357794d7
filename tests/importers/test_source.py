"""Foreign files as data with lines; what no honest file holds is refused with its place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.importers.source import parse_source, read_source


def test_json_with_comments_and_trailing_commas_keeps_its_lines() -> None:
    text = '{\n  // stage\n  "zero_optimization": {"stage": 3, /* many\n lines */ "url": "http://a//b",},\n# hash\n\t"bf16": {"enabled": true},\n}\n'
    source = parse_source(text, name="ds.json")
    assert source.data == {"zero_optimization": {"stage": 3, "url": "http://a//b"}, "bf16": {"enabled": True}}
    assert source.at(("bf16", "enabled")) == "ds.json:6"


def test_toml_knows_its_lines() -> None:
    source = parse_source('[model]\nname = "llama3"\n\n[training]\nseq_len = 8192\n', name="a.toml")
    assert source.at(("training", "seq_len")) == "a.toml:5"
    assert source.at(("training", "other")) == "a.toml:4"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"zero_optimization": {"stage": 3}\n', "a.json:2: is not JSON"),
        ("a.json", '{"stage": 1,\n "stage": 2}', "a.json:2: names the key 'stage' twice"),
        ("a.yaml", "a: [1, 2\nb: 3\n", "a.yaml:2: is not YAML"),
        ("a.yaml", "just words", "holds 'just words'"),
        ("a.yaml", "a: &a\n  b: *a\n", "refers to itself"),
        ("a.yaml", BOMB, "holds more than 100,000 values"),
        ("a.yaml", "[" * 5000, "nest"),
        ("a.toml", "[training]\nseq_len = = 3\n", "a.toml:2: is not TOML"),
        ("a.toml", '[training]\nname = "llama\n', "a.toml:2: is not TOML"),
        ("a.toml", "[a]\nb = 1\nb = 2\n", "a.toml:3: is not TOML"),
    ],
)
def test_a_malformed_text_is_refused_with_its_line_and_quickly(name: str, text: str, said: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(InputError) as caught:
        parse_source(text, name=name)
    assert said in str(caught.value)
    assert time.perf_counter() - begin < 1


def test_a_tag_makes_nothing_run() -> None:
    assert parse_source("a: !!python/object/apply:os.system ['true']\n", name="a.yaml").data == {"a": ["true"]}


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(InputError, match=r"holds 100\.0 MiB"):
        read_source(str(path))
