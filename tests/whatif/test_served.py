"""Sweeps and limits of servers: one at a time they say what an estimate says."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.limits import limits
from memcalc.whatif.served import at_most
from memcalc.whatif.sweep import sweep


def run(model: str = "llama-3.1-8b", **keys: Any) -> Run:
    return read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h100-80g", "max_num_seqs": 64, **keys})


def test_the_longest_sequence_starts_and_a_longer_one_does_not() -> None:
    """Also where it is longer than what the model is made for."""
    longest = at_most(resolve(run())).largest_model_len
    for length, fits in ((longest, True), (longest + 16, False)):
        verdict = estimate(run(max_model_len=length)).verdict
        assert verdict is not None
        assert verdict.fits is fits


def test_as_many_sequences_as_the_pool_holds() -> None:
    found = at_most(resolve(run(max_model_len=10_000)))
    assert found.answer.serving is not None
    one = found.answer.serving.sequence_bytes
    assert found.num_sequences * one <= found.answer.serving.kv_cache_bytes < (found.num_sequences + 1) * one


def test_a_sweep_says_what_estimates_say() -> None:
    """Over lengths and degrees; what does not start needs more than its card has, and no size of it is an error."""
    axes: dict[str, list[Any]] = {"tp": [1, 2, 4], "seq_len": [8192, 131_072]}
    seen = set()
    for found in sweep(lambda values: run("llama-3.1-70b", gpus=values["tp"], **values), axes):
        assert found.reason is None
        for length, peak, held in zip(found.seq_len.tolist(), found.peak_bytes.tolist(), found.held, strict=True):
            answer = estimate(run("llama-3.1-70b", tp=found.values["tp"], gpus=found.values["tp"], seq_len=length))
            assert answer.verdict is not None
            assert answer.serving is not None
            seen.add(answer.verdict.fits)
            if answer.verdict.fits:
                assert peak == answer.most_loaded.allocated_bytes
                assert held == (answer.serving.max_concurrency, answer.serving.largest_model_len)
            else:
                assert peak + sum(term.bytes for term in answer.most_loaded.device) > answer.verdict.capacity_bytes
    assert seen == {True, False}


def test_limits_are_of_the_pool() -> None:
    found = {answer.key: answer.bound for answer in limits(run(max_model_len=8192)).answers}
    most = at_most(resolve(run(max_model_len=8192)))
    assert found == {"seq_len": most.largest_model_len, "micro_batch": most.num_sequences}


def test_a_margin_is_not_a_share() -> None:
    with pytest.raises(InputError, match="share"):
        limits(run(), margin=0.1)
