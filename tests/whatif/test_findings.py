"""What is found, and on which line."""

from __future__ import annotations

from pathlib import Path

from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run
from memcalc.whatif.findings import BELOW_MARGIN, DOES_NOT_FIT, REFUSED, findings

LONG = "model: llama-7b\nseq_len: 65536\nmicro_batch: 1\nhardware:\n  gpu: a100-80g\n"


def write(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_line_is_that_of_the_key_that_makes_the_largest_kind_large(tmp_path: Path) -> None:
    path = write(tmp_path, LONG)
    (found,) = findings(path, estimate(read_run(path)))
    assert (found.rule, found.level, found.line, found.key) == (DOES_NOT_FIT, "error", 2, "seq_len")


def test_a_batch_of_several_is_blamed_before_the_length(tmp_path: Path) -> None:
    path = write(tmp_path, LONG.replace("micro_batch: 1", "micro_batch: 4"))
    (found,) = findings(path, estimate(read_run(path)))
    assert found.line == 3


def test_states_are_the_optimizers(tmp_path: Path) -> None:
    path = write(tmp_path, "model: llama-13b\nseq_len: 64\noptimizer: adamw_torch\nhardware: {gpu: a100-80g}\n")
    (found,) = findings(path, estimate(read_run(path)))
    assert (found.line, found.key) == (3, "optimizer")


def test_what_fits_is_no_finding_and_what_is_tight_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "model: llama-7b\nseq_len: 128\nhardware: {gpu: a100-80g}\n")
    roomy = estimate(read_run(path))
    assert list(findings(path, roomy)) == []
    tight = estimate(read_run(path, gpu=f"{roomy.most_loaded.device_bytes / 2**30 * 1.02:.3f}GiB"))
    (found,) = findings(path, tight)
    assert (found.rule, found.level) == (BELOW_MARGIN, "warning")
    assert next(findings(path, tight, margin_counts=True)).level == "error"


def test_a_refused_run_points_at_the_place_in_its_message(tmp_path: Path) -> None:
    path = write(tmp_path, "model: llama-7b\nsharding:\n  tp: 3\n")
    (found,) = findings(path, None, f"{path}:3: heads do not divide")
    assert (found.rule, found.file, found.line, found.reason) == (REFUSED, path, 3, "heads do not divide")
    (found,) = findings(path, None, "sharding.tp: heads do not divide")
    assert found.line == 3
