"""Log-probabilities of a shared vocabulary, by hand: bytes of a logit that are there at once, counted in the frameworks' own operators."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.code.megatron.options import Options
from memcalc.code.objective import Objective
from memcalc.code.settings import Settings
from memcalc.components import Head, Linear
from memcalc.engine.blocks import profile
from memcalc.engine.estimate import estimate
from memcalc.engine.flow import Flow
from memcalc.engine.result import Estimate
from memcalc.specs.model import Axis, Block
from memcalc.specs.read import read_run

TOKENS, VOCAB, TP = 4 * 512, 152064, 2
LOGITS = TOKENS * VOCAB // TP  # of one rank, of 151,936 words filled up to a multiple of 128 * tp


def grpo(framework: str, *, rl: dict[str, Any] | None = None, **keys: Any) -> Estimate:
    asked = {"code": "megatron", "tp": TP, "sp": True, "gpus": TP, "gpu": "h100-80g", "seq_len": 512, "micro_batch": 4, "recompute": "full"}
    server = {"engine": "vllm", "cards": "other", "prompt_length": 256}
    return estimate(read_run("qwen2.5-0.5b", task="grpo", **asked, rl={"framework": framework, **(rl or {})}, rollout=server, **keys))


def at_head(answer: Estimate, instant: str) -> int:
    """Bytes of what the head makes in the highest moment of a phase: activations outside layers."""
    made = (t for t in answer.instant(instant).terms if "/activations/" in t.path)
    return sum(t.bytes for t in made if "/layers" not in t.path and "hidden_states" not in t.path)


@pytest.mark.parametrize(
    ("framework", "rl", "phase", "width"),
    [
        ("verl", {"entropy": "none"}, "actor_log_probs", 2 + 4),  # bf16, and the wrapper's fp32, in which all is done
        ("verl", {}, "actor_log_probs", 4 + 4 + 4),  # fp32, a copy, probabilities of the entropy
        ("verl", {}, "actor_update", 4 + 4),  # probabilities that became the gradient, and that gradient over the temperature
        ("nemo-rl", {}, "actor_log_probs", 4 + 4 + 4),  # fp32, less the largest, exponents
        ("nemo-rl", {"kl": "loss"}, "reference_log_probs", 4 + 4 + 4),
    ],
)
def test_bytes_of_a_logit_are_as_written_in_the_framework(framework: str, rl: dict[str, Any], phase: str, width: int) -> None:
    found = at_head(grpo(framework, rl=rl), phase)
    assert found == pytest.approx(width * LOGITS, rel=0.01)


def test_entropies_in_the_loss_keep_logits_and_both_probabilities() -> None:
    plain, more = (grpo("verl", rl={"entropy_loss": on}).instant("actor_update").allocated_bytes for on in (False, True))
    assert more - plain == pytest.approx((12 - 8) * LOGITS, rel=0.05)


def test_some_tokens_at_a_time_leave_logits_as_they_are_and_24_bytes_of_those_tokens() -> None:
    """bf16 logits and their gradient; in fp32 logits and probabilities of 64 tokens of each sequence, and twice one-hot targets of 64 bits."""
    found = at_head(grpo("nemo-rl", rl={"logprob_chunk": 64}), "actor_update")
    assert found == pytest.approx((2 + 2) * LOGITS + 24 * LOGITS // 8, rel=0.01)


@pytest.mark.parametrize(
    ("objective", "forward", "held", "backward"),
    [
        (Objective("policy"), 6.00, 4.00, 6.00),
        (Objective("policy divided"), 6.00, 4.00, 8.00),
        (Objective("policy divided", None, "whole"), 12.00, 12.00, 12.00),
        (Objective("policy by log-softmax"), 12.00, 4.00, 8.00),
        (Objective("policy by log-softmax", chunk=64), 3.50, 2.00, 7.00),
        (Objective("policy by chunks", chunk=64), 1.50, 0.00, 5.27),
    ],
    ids=str,
)
def test_a_head_takes_what_the_frameworks_own_functions_take(objective: Objective, forward: float, held: float, backward: float) -> None:
    """Traced: the functions of Megatron-core 0.16, verl and NeMo-RL on real tensors, 512 tokens of 64 numbers, 8,192 words, one rank; bytes of a logit."""
    hidden, logits = Axis("hidden_size", 64), 512 * 8192
    block = Block("lm_head", Head(Linear("proj", hidden, Axis("vocab", 8192))), role="head")
    asked = Settings(code="megatron", attention="sdpa", batch=1, seq=512, dtype="bfloat16", objective=objective, options=Options(fused_wgrad=False))
    found = profile(block, asked, Flow((Axis("seq", 512), Axis("batch", 1), hidden), "bfloat16", requires_grad=True), {})
    made: list[float] = [n / logits for n in (found.forward.peak, found.forward.net, found.forward.net + found.release.net + found.backward.peak)]
    assert made == pytest.approx([forward, held, backward], abs=0.02)


@pytest.mark.parametrize("framework", ["verl", "nemo-rl"])
def test_fused_log_probabilities_hold_no_logits(framework: str) -> None:
    whole, fused = grpo(framework), grpo(framework, loss="fused_linear", rl={"logprob_chunk": 32} if framework == "nemo-rl" else {})
    assert max(t.bytes for t in fused.instant("actor_log_probs").terms if "activations/" in t.path) < LOGITS
    assert fused.instant("actor_log_probs").allocated_bytes < whole.instant("actor_log_probs").allocated_bytes
