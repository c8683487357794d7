"""A public out-of-memory report of a Megatron-LM run: NVIDIA/Megatron-LM issue 525.

GPT-2 large in fp16 on one V100 of 32 GB, four sequences of 1024 tokens, attention not fused; an estimator had said 23.3 GB.
"""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.specs.run import Run
from memcalc.units import GiB, MiB


def gpt2_large(**keys: Any) -> Estimate:
    """The reported run."""
    reported = {"code": "megatron", "attention": "eager", "dtype": "float16", "micro_batch": 4, "seq_len": 1024, "hardware": {"gpu": "v100-32g"}}
    return estimate(Run.model_validate({"model": "gpt2-large", **reported, **keys}))


def bytes_of(answer: Estimate, name: str) -> int:
    """The terms of forward's peak with this in their path."""
    return sum(t.bytes for t in answer.instant("forward_peak").terms if name in t.path)


@pytest.mark.accuracy
def test_it_does_not_fit_with_four_sequences() -> None:
    """States of 11.5 to 14.4 GiB, activations of 20.0 and the logits: 33 to 36 GiB."""
    answer = gpt2_large()
    assert answer.verdict is not None
    assert not answer.verdict.fits
    assert 33 <= answer.most_loaded.allocated_bytes / GiB <= 36
    assert (bytes_of(answer, "activations/") - bytes_of(answer, "activations/lm_head")) / GiB == pytest.approx(20.04, rel=0.005)


@pytest.mark.accuracy
def test_it_fits_with_two() -> None:
    """About 24 GiB."""
    answer = gpt2_large(micro_batch=2)
    assert answer.verdict is not None
    assert answer.verdict.fits
    assert answer.verdict.device_bytes / GiB == pytest.approx(24, rel=0.05)


def test_the_failed_request_was_logits_in_fp32() -> None:
    """786 MiB: the vocabulary is padded to 50304."""
    assert bytes_of(gpt2_large(), "probabilities in fp32") == 786 * MiB


def test_the_closed_form_stands_beside_it() -> None:
    """36 layers of 34 sbh + 5 a s² b."""
    term, *_ = gpt2_large().sanity
    assert term.bytes / GiB == pytest.approx(20.04, abs=0.005)
