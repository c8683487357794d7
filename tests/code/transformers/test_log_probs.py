"""Log-probabilities by flash attention's cross-entropy, as verl's FSDP workers find them: bytes of a logit by hand."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run

SEQ, ANSWER, BATCH, VOCAB, HIDDEN = 512, 256, 32, 151936, 896
LOGITS = SEQ * BATCH * VOCAB
FEW = 12
LAST_NORM = (4 + 2) * SEQ * FEW * HIDDEN  # its input in fp32, and what it gives before its weight


def at_head(phase: str, *, loss: str = "cross_entropy", batch: int = BATCH, **rl: Any) -> int:
    """Bytes of what the head makes in the highest moment of a phase: activations outside layers."""
    keys: dict[str, Any] = {"engine": "fsdp2", "gpus": 1, "dtype": "float32", "autocast": "bfloat16", "recompute": "full", "micro_batch": batch}
    server = {"engine": "vllm", "cards": "other", "prompt_length": SEQ - ANSWER, "response_length": ANSWER}
    keys |= {"loss": loss, "optimizer": "adamw_torch_fused"}
    run = read_run("qwen2.5-0.5b", task="grpo", gpu="h100-80g", rl={"framework": "verl", **rl}, rollout=server, **keys)
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


@pytest.mark.parametrize(
    ("phase", "rl", "num_bytes"),
    [
        # logits of 512 tokens in fp32, probabilities, their logarithm, and a product
        ("actor_log_probs", {}, 16 * 512 * VOCAB),
        # logits, probabilities, one-hot targets, what is between them, the gradient; and the chunk before's gradient of the weight
        ("actor_update", {}, 20 * 512 * VOCAB + 2 * HIDDEN * VOCAB + LAST_NORM),
        ("actor_update", {"entropy_loss": True}, 28 * 512 * VOCAB + 2 * HIDDEN * VOCAB + LAST_NORM),
    ],
    ids=str,
)
def test_fused_kernel_holds_logits_of_some_tokens(phase: str, rl: dict[str, Any], num_bytes: int) -> None:
    """As verl's FusedLinearForPPOFunction does itself: its allocations on a CPU are 16, 20 and 28 bytes of a chunk's logit, beside what is there before."""
    assert at_head(phase, loss="fused_linear", batch=FEW, **rl) == pytest.approx(num_bytes, rel=0.01)


def test_fused_kernel_is_that_of_a_framework() -> None:
    run = read_run("qwen2.5-0.5b", task="grpo", gpu="h100-80g", seq_len=SEQ, loss="fused_linear")
    with pytest.raises(InputError, match="whole logits"):
        estimate(run)
