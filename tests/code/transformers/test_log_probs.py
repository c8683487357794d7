"""Log-probabilities by flash attention's cross-entropy, as verl's FSDP workers find them: bytes of a logit by hand."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run

SEQ, ANSWER, BATCH, VOCAB = 512, 256, 32, 151936
LOGITS = SEQ * BATCH * VOCAB


def at_head(phase: str, **rl: Any) -> int:
    """Bytes of what the head makes in the highest moment of a phase: activations outside layers."""
    keys: dict[str, Any] = {"engine": "fsdp2", "gpus": 1, "dtype": "float32", "autocast": "bfloat16", "recompute": "full", "micro_batch": BATCH}
    server = {"engine": "vllm", "cards": "other", "prompt_length": SEQ - ANSWER, "response_length": ANSWER}
    run = read_run("qwen2.5-0.5b", task="grpo", gpu="h100-80g", rl={"framework": "verl", **rl}, rollout=server, optimizer="adamw_torch_fused", **keys)
    made = (t for t in estimate(run).instant(phase).terms if "/activations/" in t.path)
    return sum(t.bytes for t in made if "/layers" not in t.path and "hidden_states" not in t.path)


@pytest.mark.parametrize(
    ("phase", "rl", "num_bytes"),
    [
        ("actor_log_probs", {}, 2 * LOGITS),  # divided in place; entropies are found by compiled code
        ("actor_log_probs", {"entropy": "none"}, 2 * LOGITS),
        ("actor_update", {}, (2 + 2) * LOGITS),  # the gradient in the logits' place, and that over the temperature
        ("actor_update", {"entropy_loss": True}, (2 + 2 + 2) * LOGITS),  # logits, their gradients by the loss and by the entropy; then their sum
        ("actor_log_probs", {"remove_padding": False, "entropy": "none"}, 2 * LOGITS + 2 * LOGITS * ANSWER // SEQ),  # the answer's are copied
    ],
    ids=str,
)
def test_bytes_of_a_logit_are_as_written(phase: str, rl: dict[str, Any], num_bytes: int) -> None:
    assert at_head(phase, **rl) == pytest.approx(num_bytes, rel=0.01)
