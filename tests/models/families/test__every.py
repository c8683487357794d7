"""Laws that hold in every family of which a configuration is at hand: the catalogue's, and those of traced models."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcalc.engine.estimate import estimate_job
from memcalc.models import families
from memcalc.models.config import Config
from memcalc.specs.job import Job, Mesh
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run
from memcalc.tape.tensor import numel

ROOT = Path(__file__).resolve().parents[3]


def at_hand() -> dict[str, dict[str, Any]]:
    """A configuration of each model type, a traced one before the catalogue's."""
    found: dict[str, dict[str, Any]] = {}
    traced = (case["config"] for path in sorted((ROOT / "tests/data").glob("traces_*.json")) for case in json.loads(path.read_text()) if "config" in case)
    listed = (json.loads(path.read_text()) for path in sorted((ROOT / "configs/models").glob("*.json")))
    for config in (*traced, *listed):
        if isinstance(config, dict) and "model_type" in config:
            found.setdefault(config["model_type"], config)
    return found


CONFIGS = at_hand()
each_family = pytest.mark.parametrize("model_type", sorted(CONFIGS))


def build(model_type: str, vocab_size: int) -> ModelSpec:
    """The family's model with another vocabulary."""
    data = json.loads(json.dumps(CONFIGS[model_type]))
    inner = data.get("text_config", data)
    inner["padded_vocab_size" if "padded_vocab_size" in inner else "vocab_size"] = vocab_size
    return families.family(model_type).spec(Config(data, where="config.json", name="small"))


@each_family
@given(step=st.integers(1, 40), start=st.integers(300, 600))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_count_is_the_sum_over_the_shapes_and_grows_evenly_with_the_vocabulary(model_type: str, step: int, start: int) -> None:
    specs = [build(model_type, 128 * (start + i * step)) for i in range(3)]
    for spec in specs:
        assert spec.num_params == sum(numel(weight.shape) * copies for _, weight, copies in spec.weights())
    first, second = (b.num_params - a.num_params for a, b in pairwise(specs))
    assert first == second
    assert first >= (128 * step if specs[0].vocab_size else 0)


@each_family
def test_more_tokens_never_take_less(model_type: str) -> None:
    """Where it runs at all; what is counted only says so."""
    spec = build(model_type, 512)
    if spec.untraced or not any(block.role == "embedding" for block in spec.blocks):
        return
    few, more = (instants(spec, seq_len) for seq_len in (32, 64))
    assert all(few[name] <= more[name] for name in few)


def instants(spec: ModelSpec, seq_len: int) -> dict[str, int]:
    """Bytes at each instant of a training step."""
    run = Run.model_validate({"model": "small", "attention": spec.attentions[0], "seq_len": seq_len})
    job = Job(run=run, model=spec, mesh=Mesh(), engine="ddp", zero=0, micro_batch=1, seq_len=seq_len)
    return {instant.name: instant.allocated_bytes for instant in estimate_job(job).most_loaded.instants}
