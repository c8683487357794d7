"""Other people's measured runs: how far off memcalc is may not get worse, and the page that says so is up to date."""

from __future__ import annotations

import pytest

from tests import accuracy

pytestmark = pytest.mark.accuracy


@pytest.fixture(scope="module")
def rows() -> list[accuracy.Compared]:
    """Every run beside its estimate."""
    return [accuracy.compare(run) for run in accuracy.load().runs]


@pytest.mark.parametrize(
    ("groups", "confidence", "median", "nine"),
    [
        ((), ("high", "medium"), 0.0084, 0.072),
        ((), ("high",), 0.0083, 0.06),
        (("fms_main", "fms_granite", "fms_liger"), ("high", "medium"), 0.0065, 0.039),
        (("qwen3_infer", "qwen25_infer", "vllm_llmd"), ("high", "medium"), 0.0081, 0.049),
        (("mcore",), ("high", "medium"), 0.0105, 0.0275),
        (("litgpt_rt", "litgpt_hub", "litgpt_quant"), ("high", "medium"), 0.0066, 0.13),
        (("swift_old",), ("medium",), 0.019, 0.071),
        (("titan",), ("high",), 0.041, 0.069),
        (("ms_swift",), ("low",), 0.092, 0.225),
    ],
)
def test_errors_do_not_grow(rows: list[accuracy.Compared], groups: tuple[str, ...], confidence: tuple[str, ...], median: float, nine: float) -> None:
    """The median and the ninth decile of absolute errors are no larger than they were."""
    sizes = accuracy.size_of_errors(r for r in rows if (not groups or r.measured.group in groups) and r.measured.confidence in confidence)
    assert accuracy.quantile(sizes, 0.5) <= median
    assert accuracy.quantile(sizes, 0.9) <= nine


def test_other_benches_errors_do_not_grow(rows: list[accuracy.Compared]) -> None:
    """The same of what the largest bench does not carry: nine in ten of these are within a tenth, too."""
    sizes = accuracy.size_of_errors(accuracy.beside_bench(r for r in rows if r.measured.confidence in ("high", "medium")))
    assert accuracy.quantile(sizes, 0.5) <= 0.014
    assert accuracy.quantile(sizes, 0.9) <= 0.08


def test_device_errors_do_not_grow(rows: list[accuracy.Compared]) -> None:
    """Against nvidia-smi: rarely too much, and half of the runs within a tenth."""
    found = accuracy.device_errors(rows)
    assert len(found) > 70
    assert accuracy.quantile(map(abs, found), 0.5) <= 0.081
    assert accuracy.quantile(found, 0.9) <= 0.003


def test_no_verdict_is_wrong(rows: list[accuracy.Compared]) -> None:
    """Nothing that ran out of memory is said to fit, nothing that worked not to."""
    assert accuracy.wrong_verdicts(rows) == []
    assert sum(row.says is not None for row in rows) > 170


def test_every_large_error_is_spoken_of(rows: list[accuracy.Compared]) -> None:
    """A run that is off by more than a tenth says why, or that it is not known; every reason is somebody's."""
    facts = accuracy.load()
    assert [r.measured.id for r in rows if not r.measured.died and abs(r.error) > 0.1 and r.measured.why is None] == []
    assert {run.why for run in facts.runs if run.why} == set(facts.reasons)


def test_page_is_up_to_date(rows: list[accuracy.Compared]) -> None:
    """What `make accuracy` writes is what docs/accuracy.md says."""
    assert accuracy.PAGE.read_text() == accuracy.page(accuracy.load(), rows)


def test_quantile_is_a_value_that_part_of_the_values_does_not_exceed() -> None:
    """Of ten values the ninth decile is the ninth, the median the fifth."""
    values = [float(n) for n in range(1, 11)]
    assert [accuracy.quantile(values, part) for part in (0.1, 0.5, 0.9, 1)] == [1, 5, 9, 10]
