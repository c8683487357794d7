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
    """Over lengths and degrees; refusals are reasons."""
    axes: dict[str, list[Any]] = {"tp": [1, 2, 4], "seq_len": [8192, 131_072]}
    for found in sweep(lambda values: run("llama-3.1-70b", gpus=values["tp"], **values), axes):
        for length, peak in zip(found.seq_len.tolist(), found.peak_bytes.tolist(), strict=True):
            answer = estimate(run("llama-3.1-70b", tp=found.values["tp"], gpus=found.values["tp"], seq_len=length))
            assert answer.verdict is not None
            assert (peak if peak >= 0 else None) == (answer.most_loaded.allocated_bytes if answer.verdict.fits else None)
            assert found.reason == (answer.verdict.refusal or None)


def test_limits_are_of_the_pool() -> None:
    found = {answer.key: answer.bound for answer in limits(run(max_model_len=8192)).answers}
    most = at_most(resolve(run(max_model_len=8192)))
    assert found == {"seq_len": most.largest_model_len, "micro_batch": most.num_sequences}


def test_a_margin_is_not_a_share() -> None:
    with pytest.raises(InputError, match="share"):
        limits(run(), margin=0.1)
