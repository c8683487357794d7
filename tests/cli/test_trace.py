"""``memcalc trace`` without torch, and with it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests.cli.run import Cli
from tests.cli.test_estimate import LLAMA


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_one_line_says_how_to_install_it(cli: Cli) -> None:
    assert "pip install 'gpu-memcalc[trace]'" in cli.refused("trace", "llama-7b")


@pytest.mark.torch
@pytest.mark.slow
def test_the_estimate_agrees_with_the_real_code(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    data = json.loads(cli("trace", str(tmp_path), "--seq-len", "96", "--format", "json").out)
    assert data["params"]["total"] == data["params"]["estimated"]
    assert {row["name"] for row in data["instants"]} == {"start", "forward_peak", "forward_end", "backward_peak", "optimizer_step"}
    assert max(abs(row["error"]) for row in data["instants"]) < 0.01
    alive = sum(holding["bytes"] * holding["count"] for holding in data["alive"])
    assert alive == data["peak"]["traced_bytes"]
