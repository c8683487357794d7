"""Files of other frameworks among the words of a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import Cli

COMMANDS = {
    "estimate": [],
    "sweep": ["--seq-len", "256"],
    "compare": ["recompute=none", "recompute=full"],
    "export": ["--to", "trainer"],
}


@pytest.fixture
def stage_3(tmp_path: Path) -> Path:
    """A DeepSpeed file of stage 3, misnamed."""
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_them(cli: Cli, command: str, stage_3: Path) -> None:
    """What the file says and a flag denies is refused: it was read."""
    run = ["smollm2-135m", "--gpus", "2", "--gpu", "rtx4090-24g", "--seq-len", "256"][: -2 if command == "sweep" else None]
    words = [command, *run, *COMMANDS[command], "--from", str(stage_3)]
    assert cli(*words).status in (0, 1)
    assert "stage 3" in cli.refused(*words, "--zero", "1")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_launch_for_a_run(cli: Cli, command: str, stage_3: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read as `check` reads it; flags before it win."""
    monkeypatch.chdir(stage_3.parent)
    launch = ["--", "torchrun", "--nproc_per_node", "2", "train.py", "--model_name_or_path", "smollm2-135m", "--deepspeed", stage_3.name]
    words = [command, "--gpu", "rtx4090-24g", *COMMANDS[command], *([] if command == "sweep" else ["--seq-len", "256"])]
    assert cli(*words, *launch).status in (0, 1)
    assert "stage 3" in cli.refused(*words, "--zero", "1", *launch)
