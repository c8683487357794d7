"""What replicas hold besides a single card's tensors; the traced steps stand in test_deepspeed.py."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.specs.read import read_run

LLAMA_7B = 6_738_415_616


def allocated(**keys: Any) -> dict[str, int]:
    found = estimate(read_run("llama-7b", seq_len=512, **keys))
    return {i.name: i.allocated_bytes for i in found.most_loaded.instants}


def test_one_replica_has_no_buckets() -> None:
    assert allocated(engine="ddp") == allocated()


@pytest.mark.parametrize("replicas", [2, 64])
def test_buckets_hold_every_gradient_once_more_however_many_replicas(replicas: int) -> None:
    alone, among = allocated(), allocated(engine="ddp", dp=replicas)
    assert {name: n - alone[name] for name, n in among.items()} == dict.fromkeys(alone, 2 * LLAMA_7B)


def test_gradients_that_are_views_of_buckets_are_there_once() -> None:
    alone, views = allocated(), allocated(engine="ddp", dp=8, gradient_as_bucket_view=True)
    assert views["start"] - alone["start"] == 2 * LLAMA_7B
    assert views["optimizer_step"] == alone["optimizer_step"]


def test_accumulation_into_views_allocates_nothing() -> None:
    one = allocated(engine="ddp", dp=8, gradient_as_bucket_view=True)
    more = allocated(engine="ddp", dp=8, gradient_as_bucket_view=True, grad_accum=4)
    assert more == one


@pytest.mark.parametrize("images", [0, 1])
def test_weights_that_nothing_uses_have_buckets_and_no_states(images: int) -> None:
    """CLIP's last layer, which LLaVA does not read, would take a gradient and gets none; so would the whole tower without images."""
    keys: dict[str, Any] = {"seq_len": 1024, "images": images}
    alone, among = (estimate(read_run("llava-1.5-7b", **keys, **engine)) for engine in ({}, {"engine": "ddp", "dp": 2}))
    starts = [answer.most_loaded.instants[0].allocated_bytes for answer in (alone, among)]
    assert starts[1] - starts[0] == 2 * alone.model.total_params
    assert 0 <= starts[0] - 2 * alone.model.total_params - 4 * alone.model.trainable_params < 10**6
    assert alone.model.total_params - alone.model.trainable_params == (12_598_272 if images else 324_487_168)
