"""Named precisions."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.precision import PRECISIONS, with_precision
from memcalc.errors import InputError
from memcalc.specs.run import Run

DEEPSPEED = {"engine": "deepspeed", "zero": 1, "dp": 2}


def named(precision: str, **keys: Any) -> Run:
    """A run with a precision, settled."""
    return with_precision(Run.model_validate({"model": "llama-7b", "precision": precision, **keys}))


@pytest.mark.parametrize(
    ("precision", "keys", "dtypes"),
    [
        ("fp32", {}, ("float32", None)),
        ("pure_bf16", {}, ("bfloat16", None)),
        ("amp", {}, ("float32", "bfloat16")),
        ("amp_fp16", {"sharding": {"engine": "fsdp1", "dp": 2}}, ("float32", "float16")),
        ("bf16", {"sharding": DEEPSPEED}, ("bfloat16", None)),
        ("fp16", {"code": "megatron"}, ("float16", None)),
        ("trl", {}, ("float32", "bfloat16")),
        ("llamafactory", {}, ("float32", "bfloat16")),
        ("llamafactory", {"lora": {}}, ("bfloat16", "bfloat16")),
    ],
)
def test_a_name_sets_both_dtypes(precision: str, keys: dict[str, Any], dtypes: tuple[str, str | None]) -> None:
    """Of weights and of compute; LLaMA-Factory leaves a frozen base as it is."""
    run = named(precision, **keys)
    assert (run.dtype, run.autocast) == dtypes


def test_adapters_follow() -> None:
    """In bf16 where all is, otherwise in fp32."""
    assert [named(name, lora={}).lora.dtype for name in ("pure_bf16", "amp")] == ["bfloat16", "float32"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"precision": "amp", "dtype": "bfloat16"}, "dtype: precision amp makes it float32"),
        ({"precision": "pure_bf16", "lora": {"dtype": "float32"}}, "lora.dtype: precision pure_bf16 has adapters in bfloat16"),
        ({"precision": "fp16"}, "precision: engine ddp holds no masters"),
        ({"precision": "amp", "sharding": DEEPSPEED}, "precision: engine deepspeed holds fp32 masters"),
        ({"precision": "bf61"}, "precision: unknown precision 'bf61'"),
    ],
)
def test_what_contradicts_is_refused(keys: dict[str, Any], message: str) -> None:
    """Never silently one or the other."""
    with pytest.raises(InputError) as raised:
        with_precision(Run.model_validate({"model": "llama-7b", **keys}))
    assert str(raised.value).startswith(message)


def test_a_stage_implies_deepspeed_and_its_masters() -> None:
    run = with_precision(Run.model_validate({"model": "llama-7b", "precision": "fp16", "sharding": {"zero": 2, "dp": 8}}))
    assert (run.dtype, run.autocast) == ("float16", None)


def test_bytes_of_a_parameter_at_the_start() -> None:
    """Weights and moments: 12 under amp, 6 in pure bf16, 14 with masters."""
    assert set(PRECISIONS) >= {"amp", "pure_bf16", "bf16"}
    for name, keys, each in (("amp", {}, 12), ("pure_bf16", {}, 6), ("bf16", {"sharding": {"engine": "deepspeed", "zero": 0}}, 14)):
        answer = estimate(Run.model_validate({"model": "llama-7b", "seq_len": 64, "precision": name, **keys}))
        held = sum(t.bytes for t in answer.instant("start").terms if t.path.startswith(("weights/", "optimizer/")))
        assert held == pytest.approx(each * 6738415616, rel=1e-3)
