"""Laws of the dense text families, over random small configurations of each."""

from __future__ import annotations

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
from tests.models.families.dense import ENCODERS, FAMILIES, GROUPED, configs

each_family = pytest.mark.parametrize("model_type", FAMILIES)
few = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])


def build(data: dict[str, Any], **changed: Any) -> ModelSpec:
    """What a family makes of a file, some keys changed."""
    config = Config({**data, **changed}, where="config.json", name="small")
    return families.family(config.model_type).spec(config)


def instants(spec: ModelSpec, *, seq_len: int, attention: str) -> dict[str, int]:
    """Bytes at each instant of a training step."""
    run = Run.model_validate({"model": "small", "attention": attention, "seq_len": seq_len, "micro_batch": 2})
    job = Job(run=run, model=spec, mesh=Mesh(), engine="ddp", zero=0, micro_batch=2, seq_len=seq_len)
    return {instant.name: instant.allocated_bytes for instant in estimate_job(job).most_loaded.instants}


@each_family
@given(data=st.data())
@few
def test_the_count_is_the_sum_over_the_shapes(model_type: str, data: st.DataObject) -> None:
    spec = build(data.draw(configs(model_type)))
    paths = [path for path, _, _ in spec.weights()]
    assert spec.num_params == sum(numel(weight.shape) * copies for _, weight, copies in spec.weights())
    for block in spec.blocks:
        inside = [path for path, _ in block.module.weights(f"{block.path}/")]
        assert len(inside) == len(set(inside)), paths


@each_family
@given(data=st.data())
@few
def test_tying_removes_one_table(model_type: str, data: st.DataObject) -> None:
    """And in BERT and RoBERTa the bias that nothing uses when the head has its own."""
    config = data.draw(configs(model_type))
    untied, tied = build(config, tie_word_embeddings=False), build(config, tie_word_embeddings=True)
    width = config.get("embedding_size", config.get("word_embed_proj_dim", untied.hidden_size))
    loose = config["vocab_size"] if model_type in ("bert", "roberta") else 0
    assert untied.num_params - tied.num_params == config["vocab_size"] * width + loose


@pytest.mark.parametrize("model_type", GROUPED)
@given(data=st.data())
@few
def test_as_many_kv_heads_as_heads_is_multi_head_attention(model_type: str, data: st.DataObject) -> None:
    """Keys, values and queries are as wide as each other, and no fewer parameters or bytes are counted than with fewer KV heads."""
    config = data.draw(configs(model_type))
    spec, whole = build(config), build(config, num_key_value_heads=config["num_attention_heads"])
    assert whole.num_kv_heads == whole.num_heads
    assert whole.num_params >= spec.num_params
    shapes = {path.rsplit("/", 2)[-2]: weight.shape[0].size for path, weight, _ in whole.weights() if path.endswith("/weight")}
    if "k_proj" in shapes:
        assert shapes["k_proj"] == shapes["v_proj"] == shapes["q_proj"]
    else:
        assert shapes["qkv_proj"] == 3 * whole.num_heads * whole.head_dim


@each_family
@given(data=st.data())
@few
def test_more_tokens_never_take_less(model_type: str, data: st.DataObject) -> None:
    """At every instant, whatever the attention; a window that is reached on the way adds a mask."""
    spec = build(data.draw(configs(model_type)))
    attention, shorter = data.draw(st.sampled_from(("sdpa", "eager"))), data.draw(st.integers(1, 60))
    before, after = (instants(spec, seq_len=n, attention=attention) for n in (shorter, shorter + data.draw(st.integers(1, 3))))
    assert {name: (before[name], after[name]) for name in before if after[name] < before[name]} == {}


@pytest.mark.torch
@each_family
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
def test_transformers_counts_the_same(model_type: str, data: st.DataObject) -> None:
    config = data.draw(configs(model_type))
    assert build(config).num_params == counted(config)


def counted(data: dict[str, Any]) -> int:
    """What summing ``numel`` over transformers' own model gives."""
    import torch
    import transformers

    auto = transformers.AutoModelForMaskedLM if data["model_type"] in ENCODERS else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(transformers.CONFIG_MAPPING[data["model_type"]].from_dict(dict(data)))
    return sum(parameter.numel() for parameter in model.parameters())
