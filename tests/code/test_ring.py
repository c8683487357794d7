"""Context parallelism as torch runs it, around transformers' and torchtitan's modules."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.code import ring
from memcalc.engine.estimate import estimate, estimate_job, walk_rank
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.model import Axis
from memcalc.specs.read import read_run
from memcalc.tape.span import sum_up
from memcalc.tape.tape import Tape
from tests.engine.toy import job, llama

SHAPE = (Axis("batch", 2), Axis("heads", 8), Axis("seq", 64), Axis("head_dim", 32))
KV = (Axis("batch", 2), Axis("kv_heads", 4), Axis("seq", 64), Axis("head_dim", 32))
Q, K = 2 * 2 * 8 * 64 * 32, 2 * 2 * 4 * 64 * 32
"""Bytes of the queries, and of the keys, which are as many as those of the values."""
LSE = 4 * 2 * 8 * 64


@pytest.mark.parametrize("cp", [2, 8])
def test_keys_and_values_of_all_ranks_are_there_while_steps_are_merged_in_fp32(cp: int) -> None:
    """Beside them at most the sum, a step's output in both dtypes, and two terms of the merge."""
    tape = Tape()
    query, key, value = (tape.input(shape, "bfloat16", name) for shape, name in ((SHAPE, "query"), (KV, "key"), (KV, "value")))
    begin = len(tape.events)
    out = ring.attend(tape, cp, query, key, value)
    span = sum_up(tape.events[begin:])
    assert span.peak == cp * 2 * K + (2 * Q + LSE) + (Q + 2 * Q) + 2 * (2 * Q)
    assert span.net == Q
    del out


def kept(**keys: Any) -> int:
    """Activations at the end of the forward pass."""
    terms = next(i for i in estimate_job(job(llama(), engine="fsdp2", **keys)).most_loaded.instants if i.name == "forward_end").terms
    return sum(t.bytes for t in terms if t.path.startswith("activations/layers"))


@pytest.mark.parametrize("cp", [2, 4])
def test_what_is_saved_is_that_of_a_shorter_sequence(cp: int) -> None:
    assert kept(cp=cp, seq_len=1024, gpus=4) == kept(seq_len=1024 // cp, gpus=4)


@pytest.mark.parametrize("keys", [{}, {"recompute": "full"}, {"code": "torchtitan", "recompute": "selective"}])
def test_a_step_leaves_nothing_behind(keys: dict[str, Any]) -> None:
    """But the loss, which the caller holds."""
    walk = walk_rank(job(llama(), engine="fsdp2", cp=2, seq_len=256, gpus=4, **keys)).walk
    assert {p: n for p, n in walk.by_path.items() if n and p.startswith("activations/")} == {"activations/lm_head/loss": 4}


@pytest.mark.parametrize(("model", "keys", "said"), [("llama-7b", {"attention": "eager"}, "sdpa"), ("gemma-3-1b", {}, "full causal attention")])
def test_what_accelerate_refuses_is_refused(model: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(read_run(model, cp=2, gpus=2, engine="fsdp2", **keys))


@pytest.mark.parametrize("model", ["deepseek-v2-lite", "falcon-7b"])
def test_attention_of_a_model_s_own_goes_around_the_ring_too(model: str) -> None:
    """What is saved is what one fused kernel saves of a shorter sequence."""

    def saved(**keys: Any) -> int:
        answer = estimate(read_run(model, engine="fsdp2", gpus=4, **keys))
        return sum(t.bytes for t in answer.instant("forward_end").terms if t.path.startswith("activations/layers"))

    assert saved(cp=4, seq_len=8192) == pytest.approx(saved(seq_len=2048, attention="flash_attention_2"), rel=0.01)
