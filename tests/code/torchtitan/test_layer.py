"""torchtitan's models against traced steps of torchtitan 0.2.2's own code (torch 2.13, tensors without data)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.code import context
from memcalc.code.context import Context
from memcalc.components import RMSNorm
from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor
from tests.traced import Case, errors, load_cases

CASES = load_cases("torchtitan")
TOLERANCE = 1.5e-3
"""Relative. What is left are the labels, 8 bytes a token, which a batch has beside its ids."""


def norm_of_a_cpu(ctx: Context, m: RMSNorm, x: Tensor) -> Tensor:
    """``torch.rms_norm`` where it is no kernel: written out in fp32 (aten/src/ATen/native/layer_norm.cpp, rms_norm_composite)."""
    (weight,) = (ctx.parameter(w) for w in m.own_weights())
    wide = F.cast(x, "float32", "input in fp32")
    variance = F.mean(F.pow2(wide), "variance")
    inverse = F.rsqrt(variance, "inverse root mean square")
    del variance
    normal = F.mul(wide, inverse, "normalised")
    out = F.mul(normal, weight, "output in fp32")
    del wide, normal, inverse
    return F.cast(out, x.dtype, "output")


@pytest.mark.accuracy
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the peaks under tensor parallelism, where a trace does not see into DTensor's loss; traces run a CPU's norm."""
    context.program_for("torchtitan", RMSNorm)
    monkeypatch.setitem(context._programs, ("torchtitan", RMSNorm), norm_of_a_cpu)
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


def activations(**keys: Any) -> dict[str, int]:
    """What one layer of Llama 3.1 8B keeps of 4096 tokens, by path."""
    run = {"code": "torchtitan", "dp": 8, "dtype": "float32", "autocast": "bfloat16", "seq_len": 4096, **keys}
    terms = estimate(read_run("llama-3.1-8b", **run)).instant("forward_end").terms
    return {t.path.removeprefix("activations/layers/"): t.bytes // 32 for t in terms if t.path.startswith("activations/layers/")}


def test_a_selective_checkpoint_keeps_attention_and_every_other_product() -> None:
    """Of seven products the first, third, fifth and seventh: queries, values, gate, and what the network gives; attention with its log-sum-exp."""
    tokens, hidden, kv, intermediate = 4096, 4096, 1024, 14336
    kept = {
        "self_attn/q_proj/output": 2 * hidden,
        "self_attn/v_proj/output": 2 * kv,
        "self_attn/attention output": 2 * hidden,
        "self_attn/log-sum-exp": 4 * 32,
        "mlp/gate_proj/output": 2 * intermediate,
        "mlp/down_proj/output": 2 * hidden,
    }
    assert activations(recompute="selective") == {path: tokens * n for path, n in kept.items()}


def test_a_full_checkpoint_keeps_the_input_alone() -> None:
    assert activations(recompute="full") == {}


def test_under_tensor_parallelism_norms_are_cut_along_the_sequence() -> None:
    """And what products read is gathered whole; the norm's output itself is not kept."""
    whole, cut = activations(), activations(tp=4, sp=True)
    assert cut["input_layernorm/inverse root mean square"] * 4 == whole["input_layernorm/inverse root mean square"]
    assert cut["self_attn/gathered input"] == whole["input_layernorm/output"]
    assert "input_layernorm/output" not in cut
    assert cut["mlp/gate * up"] * 4 == whole["mlp/gate * up"]


def test_rows_of_experts_are_padded_whatever_the_routing() -> None:
    """Qwen3 30B: eight experts of 128 for each of 4096 tokens, and room for eight rows more of each expert (_permute)."""
    run = {"code": "torchtitan", "dp": 8, "dtype": "float32", "autocast": "bfloat16", "seq_len": 4096}
    terms = estimate(read_run("qwen3-30b-a3b", **run)).instant("forward_end").terms
    found = {t.path.removeprefix("activations/layers/mlp/"): t.bytes // 48 for t in terms}
    rows, hidden, intermediate = 4096 * 8, 2048, 768
    assert found["experts/padded rows by expert"] == 2 * (rows + 128 * 8) * hidden
    assert found["experts/w1 of rows"] == found["experts/silu * w3"] == 2 * (rows + 128 * 8) * intermediate
    assert found["answers in fp32"] == 4 * rows * hidden


def test_experts_spread_over_ranks_take_rows_from_all_and_hold_fewer_weights() -> None:
    run = {"code": "torchtitan", "gpus": 16, "dtype": "float32", "autocast": "bfloat16", "seq_len": 4096}
    alone, spread = (estimate(read_run("qwen3-30b-a3b", **run, **keys)) for keys in ({}, {"ep": 8}))
    name = "activations/layers/mlp/experts/padded rows by expert"
    padded = [next(t.bytes for t in e.instant("forward_end").terms if t.path == name) // 48 for e in (alone, spread)]
    assert padded == [2 * (4096 * 8 + experts * 8) * 2048 for experts in (128, 16)]
    assert {t.path: t.bytes for t in spread.instant("start").terms}["weights/layers"] == pytest.approx(
        {t.path: t.bytes for t in alone.instant("start").terms}["weights/layers"], rel=1e-3
    )
