"""Lengths from files of every form, a piece at a time."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import numpy as np
import pytest

from memcalc.errors import InputError
from memcalc.whatif.lengths import read
from memcalc.whatif.lengths.read import lengths_of

LENGTHS = [5, 7, 7, 12, 300]


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n}\n" for n in LENGTHS),
        "\r\n".join(map(str, LENGTHS)),
        "id,length\n" + "".join(f"a,{n}\n" for n in LENGTHS),
        "".join(f'{{"text": "…", "length": {n}}}\n' for n in LENGTHS),
        "".join(f'{{"length": {n}, "note": "\\"length\\": 9,"}}\n' for n in LENGTHS),
        "".join(f'{{"tokens": {[1] * n}}}\n' for n in LENGTHS),
    ],
    ids=["lines", "lines of Windows", "csv", "jsonl", "jsonl that quotes itself", "lists of tokens"],
)
def test_every_form_gives_the_same(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lengths"
    file.write_text(text, encoding="utf-8", newline="")
    for piece in (1 << 20, 16):
        monkeypatch.setattr(read, "PIECE", piece)
        found = lengths_of(str(file))
        assert dict(zip(found.lengths.tolist(), found.counts.tolist(), strict=True)) == {5: 1, 7: 2, 12: 1, 300: 1}
        assert (found.known, found.num_samples) == (True, 5)


def test_quantiles_and_shapes_have_the_quantiles_they_are_given(tmp_path: Path) -> None:
    file = tmp_path / "quantiles.yaml"
    file.write_text("p50: 512\np99: 4096\nmax: 8192\n", encoding="utf-8")
    for source in (str(file), "p50=512,p99=4096,max=8192"):
        found = lengths_of(source)
        assert [found.quantile(q) for q in (0.5, 0.99, 1.0)] == [512, 4096, 8192]
    assert lengths_of("lognormal:median=600,sigma=1.1,max=65536").quantile(0.5) == 600
    assert lengths_of("exponential:mean=100,max=10000").mean == pytest.approx(100.5, abs=0.5)
    assert lengths_of("uniform:min=10,max=19").mean == pytest.approx(14.5)
    assert lengths_of("pareto:min=100,alpha=2,max=100000").quantile(0.75) == pytest.approx(200, abs=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5\nabc\n7\n", ":2: 'abc' is no length"),
        ("5\n-3\n", ":2: '-3' is no length"),
        ("0\n5\n", "length 0"),
        ("99999999999\n", "is no length: whole numbers from 1 to 16,777,216"),
        ("", "holds no lengths"),
        ("a\rb,length\n1,5\n", "is no table of lengths, nor a length a line"),
        ("id,length\n1,5\na\rb,7\n", "a row from line 2 on has no length in that column"),
        ("id,size\n1,5\n", "which column holds lengths? give --lengths-column, one of id, size"),
        ('{"length": 5}\n{"length": "x"}\n', "length is 'x': a whole number, or a list of tokens"),
        ("p50: 9\np90: 4\nmax: 10\n", "quantiles rise"),
        ("p50: 9\n", "needs the longest, too"),
    ],
)
def test_what_is_no_length_is_said_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "lengths"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        lengths_of(str(file))
    assert said in str(refused.value)


def test_a_shape_names_its_parameters() -> None:
    with pytest.raises(InputError, match="median is missing"):
        lengths_of("lognormal:max=5")
    with pytest.raises(InputError, match="unknown parameter 'mu'"):
        lengths_of("lognormal:mu=5,max=9")
    with pytest.raises(InputError, match="a file, quantiles, or a shape was expected"):
        lengths_of("/no/such/file")


@pytest.mark.slow
def test_ten_million_lengths_take_seconds_and_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "lengths"
    some = "\n".join(map(str, np.random.default_rng(0).integers(1, 32768, 100_000)))
    file.write_text(f"{some}\n" * 100, encoding="utf-8")
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    assert lengths_of(str(file)).num_samples == 10_000_000
    assert time.process_time() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 * 1024
