"""What the head of a language model gives in the place of a loss on labels, by the name that a task has for it."""

from __future__ import annotations

from memcalc.code.transformers.distillation import distillation
from memcalc.code.transformers.log_probs import logits, odds, policy, policy_by_kernel, policy_in_fp32, policy_in_place, preference
from memcalc.code.transformers.policy_chunks import policy_by_chunks
from memcalc.code.transformers.tiles import tiles

OBJECTIVES = {
    "logits": logits,
    "preference": preference,
    "margin": preference,
    "odds": odds,
    "policy": policy,
    "policy by chunks": policy_by_chunks,
    "policy by kernel": policy_by_kernel,
    "policy in fp32": policy_in_fp32,
    "policy in place": policy_in_place,
    "distillation": distillation,
    "tiles": tiles,
}
"""Programs of a head, under `Settings.objective`."""
