"""`memcalc diff`, and the files that other tools read at the top of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from memcalc.cli.shell import registry
from tests.cli.run import Cli

ROOT = Path(__file__).resolve().parents[2]


def test_a_change_is_shown_against_the_snapshot(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text("model: llama-7b\nseq_len: 512\nhardware: {gpu: a100-80g}\n")
    assert cli("diff", "a.yaml", "--format", "json", "--out-file", "base.json").status == 0
    assert cli("diff", "--base", "base.json", "a.yaml") == (0, "", "")
    Path("a.yaml").write_text("model: llama-7b\nseq_len: 65536\nhardware: {gpu: a100-80g}\n")
    done = cli("diff", "--base", "base.json", "a.yaml")
    assert done.status == 1
    assert "fits → **does not fit**" in done.out


def test_a_snapshot_is_needed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: llama-7b\n")
    assert "--base" in cli.refused("diff", str(tmp_path / "a.yaml"))


def test_files_that_are_not_there_make_no_comment(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text('{"schema_version": 1, "runs": {}}')
    assert "nowhere.yaml: no such file" in cli.refused("diff", "nowhere.yaml", "--base", str(tmp_path / "base.json"))


def test_the_action_and_the_hook_call_commands_that_there_are() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    scripts = "\n".join(step["run"] for step in action["runs"]["steps"])
    assert set(re.findall(r'"\$memcalc" (\w+)', scripts)) == {"check", "diff"}
    assert "${{" not in scripts  # what a user gives reaches the shell through the environment alone
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert hook["entry"].split()[1] in registry.names()
