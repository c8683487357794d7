"""``memcalc export``."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.run import Cli


def test_what_a_format_leaves_out_is_said_beside_the_file(cli: Cli, tmp_path: Path) -> None:
    """The file goes to stdout alone, and is read as the same run with what was named."""
    done = cli("export", "llama-3.2-1b", "--seq-len", "512", "--zero", "3", "--gpus", "4", "--to", "deepspeed")
    assert (done.status, done.err) == (0, "memcalc: deepspeed has no words for seq_len, model: say them beside it\n")
    (tmp_path / "ds.json").write_text(done.out, encoding="utf-8")
    asked = ("estimate", "llama-3.2-1b", "--seq-len", "512", "--gpus", "4", "--format", "json")
    answers = [json.loads(cli(*asked, *more).out)["instants"] for more in (("--zero", "3"), ("--from", str(tmp_path / "ds.json")))]
    assert answers[0] == answers[1]
