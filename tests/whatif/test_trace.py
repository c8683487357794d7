"""Estimates against the real code. What needs torch is skipped where it is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.whatif.real_model import check
from memcalc.whatif.trace import agreement

TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 200, "max_position_embeddings": 128, "head_dim": 16, "tie_word_embeddings": False, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {"code": "megatron"}, {"attention": "flash_attention_2"}, {"zero": 2}, {"pp": 2}, {"engine": "deepspeed"}, {"dp": 2}, {"quantization": "nf4"},
        {"offload": {"optimizer": "cpu"}}, {"recompute": "selective"}, {"loss": "chunked"},
    ],
)  # fmt: skip
def test_what_tracing_does_not_cover_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"trace"):
        check(read_run("llama-7b", **keys))


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"recompute": "full", "optimizer": "adamw_torch_fused"},
        {"dtype": "float32", "autocast": "bfloat16", "optimizer": "sgd", "momentum": 0.9},
        {"grad_accum": 4, "attention": "eager"},
        {"task": "inference"},
        {"engine": "fsdp2", "dp": 4},
        {"tp": 2, "optimizer_foreach": False},
    ],
    ids=str,
)
def test_every_instant_agrees(keys: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    found = agreement(read_run(str(tmp_path), seq_len=96, micro_batch=2, **keys))
    assert found.estimate is not None, found.why_none
    assert found.estimate.model.total_params == found.trace.num_params
    assert {name: error for name, _, _, error in found.rows() if error is None or abs(error) > 0.01} == {}
    assert sum(holding.total_bytes for holding in found.trace.holdings) == found.trace.instants[found.trace.peak]


@pytest.mark.torch
def test_what_the_real_code_refuses_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nosuch", "hidden_size": 8}))
    with pytest.raises(InputError, match="nosuch"):
        agreement(read_run(str(tmp_path), seq_len=8))
