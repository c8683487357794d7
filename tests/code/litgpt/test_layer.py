"""LitGPT's models against traced steps of its own code, as finetune_lora and finetune_full run it (0.5.13, torch 2.13 on a CPU)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memcalc.engine.estimate import estimate, walk_ranks
from memcalc.engine.resolve import resolve
from memcalc.specs.read import read_run
from tests.traced import Case, errors, load_cases

TOLERANCE = 3e-4
"""Masks of labels, and losses of single tokens before they are summed."""


@pytest.mark.accuracy
@pytest.mark.parametrize("case", load_cases("litgpt"), ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case, tmp_path: Path) -> None:
    """The loop's variable holds the logits until the optimizer has stepped; those of the step before are left out of the start."""
    answer = case.estimate(tmp_path)
    assert answer.model.total_params == case.num_params
    assert {name: e for name, e in errors(case, answer).items() if abs(e) > TOLERANCE} == {}


def test_values_keep_the_whole_projection() -> None:
    """Of Llama 2 7B with an adapter on queries and values, a token keeps 6 of the model's width for values, and 4 for the update between zeros."""
    run = {"code": "litgpt", "seq_len": 1024, "lora": {"r": 8, "target_modules": ["q_proj", "v_proj"]}}
    terms = {t.path: t.bytes for t in estimate(read_run("llama-2-7b", **run)).instant("forward_end").terms}
    per = 32 * 1024 * 4096
    assert terms["activations/layers/self_attn/queries, keys and values"] == 6 * per
    assert terms["activations/layers/self_attn/update"] == 4 * per


def test_lengths_in_an_array_are_counted_as_one_by_one() -> None:
    """Pieces of 128 tokens are as many as the longest sequence has."""
    job = resolve(read_run("llama-2-7b", code="litgpt", seq_len=512))
    (found,) = walk_ranks(replace(job, seq_len=np.array([300, 512])), detailed=False)
    each = [estimate(read_run("llama-2-7b", code="litgpt", seq_len=n)).instant("forward_end").allocated_bytes for n in (300, 512)]
    buffers = 2 * 4 * 128 * np.array([512 - 300, 0])
    assert (found.walk.instants["forward_end"].total - buffers - each)[1] == 0
    assert abs((found.walk.instants["forward_end"].total - buffers - each)[0]) < 1 << 20
