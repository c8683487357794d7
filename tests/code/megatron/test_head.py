"""The vocabulary-parallel loss."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from tests.engine.toy import job, llama

TOKENS, VOCAB = 128, 1024
"""1,000 entries are padded to a multiple of 128 times tp."""


def logits(name: str, **keys: Any) -> int:
    """Bytes of the logits, of the probabilities and of the gradient, at an instant."""
    instant = estimate_job(job(llama(), code="megatron", **keys)).instant(name)
    return sum(t.bytes for t in instant.terms if t.path.endswith(("/logits", "/probabilities in fp32", "/gradient of logits")))


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_peak_holds_logits_and_their_fp32_copy(tp: int) -> None:
    """Six bytes a token and entry of the rank's part of the vocabulary; four stay for backward."""
    assert logits("forward_peak", tp=tp) == 6 * TOKENS * VOCAB // tp
    assert logits("forward_end", tp=tp) == 4 * TOKENS * VOCAB // tp
    assert logits("backward_peak", tp=tp) == 6 * TOKENS * VOCAB // tp


def test_transformer_engines_loss_keeps_the_logits_alone() -> None:
    """Two bytes; the gradient is written over them."""
    assert logits("forward_end", cross_entropy_fusion_impl="te") == 2 * TOKENS * VOCAB


def test_each_prediction_module_adds_logits_of_its_own() -> None:
    """On the stage that holds the head."""
    assert logits("forward_end", mtp_num_layers=2) == 3 * 4 * TOKENS * VOCAB


def test_a_pipeline_holds_them_on_its_last_stage_only() -> None:
    """The first stage has none."""
    answer = estimate_job(job(llama(), code="megatron", pp=2))
    by_stage = {r.rank["pp"]: {t.path for i in r.instants for t in i.terms} for r in answer.ranks}
    assert not any("lm_head" in path for path in by_stage[0])
    assert any("lm_head" in path for path in by_stage[1])


@pytest.mark.parametrize("tp", [1, 2])
def test_a_compiled_loss_copies_the_probabilities_for_its_gradient(tp: int) -> None:
    """Ten bytes a token and entry in backward; in forward six as without."""
    keys = {"tp": tp, "cross_entropy_fusion_impl": "native"}
    instant = estimate_job(job(llama(), code="megatron", **keys)).instant("backward_peak")
    copied = sum(t.bytes for t in instant.terms if t.path.endswith("/probabilities less ones"))
    assert logits("backward_peak", **keys) + copied == 10 * TOKENS * VOCAB // tp
    assert logits("forward_peak", **keys) == 6 * TOKENS * VOCAB // tp
