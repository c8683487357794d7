"""What was measured takes the place of what cannot be derived."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.whatif.calibration import Calibration, calibrated, read_calibration
from tests.cli.run import Cli

MEASURED = Calibration("NVIDIA A100", 3, 900_000_000, 150_000_000, None)


def test_the_card_shows_what_was_measured_on_top_of_the_tensors(tmp_path: Path) -> None:
    plain = estimate(read_run("qwen2.5-0.5b", gpu="24GiB", seq_len=64))
    file = tmp_path / "calibration.json"
    MEASURED.write(file)
    found = calibrated(plain, read_calibration(str(file)))
    assert found.most_loaded.allocated_bytes == plain.most_loaded.allocated_bytes
    assert found.most_loaded.device_bytes == plain.most_loaded.allocated_bytes + 900_000_000 + 150_000_000
    assert found.verdict is not None
    assert found.verdict.device_bytes == found.most_loaded.device_bytes
    assert found.notes[-1] == "context, libraries and fragmentation as measured on NVIDIA A100 over 3 steps"


@pytest.mark.parametrize(
    ("text", "said"), [("{", "cannot be read"), ("{}", "no calibration of memcalc.watch"), ('{"memcalc_calibration": 1, "steps": 3}', "outside_bytes is None")]
)
def test_another_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_calibration(str(file))


def test_estimate_takes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "calibration.json"
    MEASURED.write(file)
    out = Cli(capsys)("estimate", "qwen2.5-0.5b", "--gpu", "24GiB", "--seq-len", "64", "--calibration", str(file)).out
    assert "as measured on NVIDIA A100 over 3 steps" in " ".join(out.split())
