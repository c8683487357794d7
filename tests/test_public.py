"""The public door: what is offered, and that it opens at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import memcalc


def test_importing_memcalc_imports_nothing_of_it() -> None:
    code = "import sys; import memcalc; print(*(m for m in sys.modules if m.startswith(('memcalc.', 'pydantic', 'typer', 'yaml'))))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_everything_that_is_offered_can_be_had() -> None:
    assert memcalc.__all__ == sorted(memcalc.__all__, key=lambda name: (name[0].islower(), name))
    assert dir(memcalc) == sorted(memcalc.__all__)
    for name in memcalc.__all__:
        assert getattr(memcalc, name).__doc__, name
    with pytest.raises(AttributeError, match="nothing"):
        memcalc.nothing  # noqa: B018


def test_an_estimate_from_python_is_the_one_that_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: llama-7b\nseq_len: 512\nsharding: {tp: 2}\n")
    answers = [
        memcalc.estimate("llama-7b", tp=2, seq_len=512),
        memcalc.estimate({"model": "llama-7b", "seq_len": 512, "sharding": {"tp": 2}}),
        memcalc.estimate(path),
        memcalc.estimate(model="llama-7b", seq_len=512, tp=2),
        memcalc.estimate(memcalc.Run(model="llama-7b", seq_len=512, sharding=memcalc.ShardingSpec(tp=2))),
    ]
    assert isinstance(answers[0], memcalc.Estimate)
    assert len({answer.peak.allocated_bytes for answer in answers}) == 1
    assert answers[0].model.total_params == 6738415616


def test_a_mistake_is_an_input_error() -> None:
    with pytest.raises(memcalc.InputError, match="accepted: a whole number"):
        memcalc.estimate("llama-7b", tp=0)
    with pytest.raises(memcalc.UnknownNameError, match="did you mean llama-7b"):
        memcalc.estimate("lama-7b")


def test_comparison_is_offered() -> None:
    found = memcalc.compare({"one": "llama-7b", "two": {"model": "llama-7b", "sharding": {"tp": 2}}}, seq_len=256)
    assert found.difference_bytes(1) < 0


def test_questions_of_whatif_are_offered() -> None:
    found = memcalc.sweep("llama-7b", seq_len=[512, 1024], tp=(1, 2), gpu="a100-80g")
    assert found.counts()["fits"] == 4
    assert {row.values["tp"] for row in found.combinations()} == {1, 2}
    assert memcalc.sweep(model=["llama-7b", "gpt2"], seq_len=512).counts()["unjudged"] == 2
    assert memcalc.advise("llama-7b", micro_batch=8, seq_len=2048, gpu="a100-80g").path
    assert memcalc.plan("gpt2", gpus=2, gpu="rtx4090-24g", seq_len=512, global_batch=8).fitting
    with pytest.raises(memcalc.InputError, match="no card"):
        memcalc.limits("gpt2")


def test_stress_and_diagnosis_are_offered(tmp_path: Path) -> None:
    assert memcalc.stress("qwen2.5-0.5b", gpu="24GiB", seq_len=64, only=["loss-spike"]).survives
    line = "RuntimeError: CUDA out of memory. Tried to allocate 260.00 MiB (GPU 0; 8.00 GiB total capacity; 7.5 GiB already allocated; 9.0 MiB free)\n"
    log = tmp_path / "train.log"
    log.write_text(line, encoding="utf-8")
    for found in (memcalc.diagnose([line]), memcalc.diagnose(log), memcalc.diagnose(str(log), "qwen2.5-0.5b", seq_len=64)):
        assert found.findings[0].crash.message.gpu == 0
