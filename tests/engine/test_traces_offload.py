"""Traced steps whose saved tensors go to the host by hooks like torchtune's, and what else that asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run
from tests.traced import DATA, Case, errors

TOLERANCE = 0.01
"""The last copies of a block are through when the next begins, a little too early; of the last norm, a little too late."""


def load() -> list[Any]:
    """Each case, with the bytes that its hooks sent to the host."""
    cases = json.loads((DATA / "traces_offload.json").read_text())
    return [pytest.param(case.pop("host_bytes"), Case(**case), id=case["id"]) for case in cases]


@pytest.mark.parametrize(("host_bytes", "case"), load())
def test_every_instant_agrees_with_the_trace(host_bytes: int, case: Case, tmp_path: Path) -> None:
    """To a hundredth, the host's bytes exactly."""
    answer = case.estimate(tmp_path)
    assert answer.host_bytes == host_bytes
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


@pytest.mark.parametrize("engine", [{"engine": e, "dp": 2} for e in ("ddp", "fsdp1", "fsdp2")] + [{"engine": "deepspeed", "zero": z, "dp": 2} for z in (2, 3)])
def test_checkpoints_on_the_host_leave_one_layer_on_the_card(engine: dict[str, Any]) -> None:
    """What every layer's input took is pinned on the host, under every engine; no term is negative."""
    keys = {"model": "llama-7b", "seq_len": 4096, "recompute": "full", "sharding": engine}
    kept, sent = (estimate(Run.model_validate({**keys, "offload": offload})) for offload in ({}, {"activations": "cpu"}))
    inputs = 32 * 4096 * 4096 * 2
    assert kept.instant("forward_end").allocated_bytes - sent.instant("forward_end").allocated_bytes > 0.9 * inputs
    assert sum(t.bytes for t in sent.most_loaded.host if "activations" in t.path) > inputs
    assert min(t.bytes for i in sent.most_loaded.instants for t in i.terms) >= -8


@pytest.mark.parametrize("keys", [{"code": "megatron"}, {"sharding": {"pp": 2, "engine": "ddp"}}])
def test_other_modules_are_refused(keys: dict[str, Any]) -> None:
    """They have other hooks."""
    with pytest.raises(InputError, match=r"offload\.activations: saved activations on the host are known for transformers"):
        estimate(Run.model_validate({"model": "llama-7b", "seq_len": 512, "offload": {"activations": "cpu"}, **keys}))
