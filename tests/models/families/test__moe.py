"""Families with experts: laws over random small configurations of each, and the counts that model cards give."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcalc.models.read import read_model
from memcalc.tape.tensor import numel
from tests.models.families.moe import CHOICE, COUNT, FAMILIES, REMOTE, configs
from tests.models.families.sizes import build, check_shapes, counted, instants

each_family = pytest.mark.parametrize("model_type", FAMILIES)
BILLION = 10**9
few = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])


def choosing(data: dict[str, Any], top_k: int) -> dict[str, Any]:
    """The same model, of whose experts a token visits so many."""
    key = CHOICE.get(data["model_type"], "num_experts_per_tok")
    changed = {**data, key: top_k}
    return {**changed, "ffn_config": {**data["ffn_config"], key: top_k}} if "ffn_config" in data else changed


@each_family
@given(data=st.data())
@few
def test_the_count_is_the_sum_over_the_shapes(model_type: str, data: st.DataObject) -> None:
    check_shapes(build(data.draw(configs(model_type))))


@each_family
@given(data=st.data())
@few
def test_active_parameters_are_those_of_the_experts_that_a_token_visits(model_type: str, data: st.DataObject) -> None:
    """Never more than all; all of them when a token visits every expert; each further expert adds the same to both counts."""
    config = data.draw(configs(model_type))
    spec, count = build(config), config[COUNT[model_type]]
    assert spec.active_params is not None
    assert spec.active_params <= spec.num_params
    if model_type != "phimoe":
        whole = build(choosing(config, count))
        assert whole.active_params == whole.num_params == spec.num_params
    routed = sum(numel(w.shape) * copies for _, w, copies in spec.weights() if w.is_expert)
    chosen = config[CHOICE.get(model_type, "num_experts_per_tok")]
    assert spec.num_params - spec.active_params == routed // count * (count - chosen)


@each_family
@given(data=st.data())
@few
def test_more_tokens_never_take_less(model_type: str, data: st.DataObject) -> None:
    """At every instant, whatever the attention."""
    spec = build(data.draw(configs(model_type)))
    attention, shorter = data.draw(st.sampled_from(spec.attentions[:2])), data.draw(st.integers(1, 60))
    before, after = (instants(spec, seq_len=n, attention=attention) for n in (shorter, shorter + data.draw(st.integers(1, 3))))
    assert {name: (before[name], after[name]) for name in before if after[name] < before[name]} == {}


@each_family
@given(data=st.data())
@few
def test_more_experts_for_a_token_never_take_less(model_type: str, data: st.DataObject) -> None:
    config = data.draw(configs(model_type))
    count, key = config[COUNT[model_type]], CHOICE.get(model_type, "num_experts_per_tok")
    if model_type == "phimoe" or config[key] == count:
        return
    fewer, more = (instants(build(choosing(config, n)), seq_len=24, attention="eager") for n in (config[key], config[key] + 1))
    assert {name: (fewer[name], more[name]) for name in fewer if more[name] < fewer[name]} == {}


@pytest.mark.torch
@pytest.mark.parametrize("model_type", [family for family in FAMILIES if family not in REMOTE])
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_transformers_counts_the_same(model_type: str, data: st.DataObject) -> None:
    config = data.draw(configs(model_type))
    assert build(config).num_params == counted(config)


@pytest.mark.accuracy
@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("mixtral-8x7b", 46.7, 12.9),  # mistral.ai/news/mixtral-of-experts
        ("mixtral-8x22b", 141, 39),  # mistral.ai/news/mixtral-8x22b
        ("qwen1.5-moe-a2.7b", 14.3, 2.7),  # huggingface.co/Qwen/Qwen1.5-MoE-A2.7B
        ("qwen3-30b-a3b", 30.5, 3.3),  # huggingface.co/Qwen/Qwen3-30B-A3B
        ("qwen3-235b-a22b", 235, 22),  # huggingface.co/Qwen/Qwen3-235B-A22B
        ("olmoe-1b-7b", 6.9, 1.3),  # arxiv.org/abs/2409.02060, table 1
        ("deepseek-moe-16b", 16.4, 2.8),  # arxiv.org/abs/2401.06066, section 5
        ("deepseek-v2", 236, 21),  # arxiv.org/abs/2405.04434
        ("deepseek-v3", 671, 37),  # arxiv.org/abs/2412.19437
    ],
)
def test_counts_are_the_published_ones(name: str, total: float, active: float) -> None:
    """To the digits that are given."""
    spec = read_model(name)
    assert spec.num_params / BILLION == pytest.approx(total, rel=0.01)
    assert (spec.active_params or 0) / BILLION == pytest.approx(active, rel=0.025)


@pytest.mark.accuracy
@pytest.mark.parametrize(("name", "total", "active"), [("gpt-oss-20b", 20.9, 3.6), ("gpt-oss-120b", 116.8, 5.1)])
def test_openai_leaves_the_embeddings_out_of_the_active_ones(name: str, total: float, active: float) -> None:
    """cdn.openai.com/pdf/419b6906-9da6-406c-a19d-1bb078ac7637/oai_gpt-oss_model_card.pdf, table 1: unembedding counted, embedding not."""
    spec = read_model(name)
    assert spec.num_params / BILLION == pytest.approx(total, rel=0.002)
    assert ((spec.active_params or 0) - spec.vocab_size * spec.hidden_size) / BILLION == pytest.approx(active, rel=0.01)
