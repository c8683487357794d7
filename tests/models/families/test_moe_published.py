"""What model cards say about their size: all parameters, and those that a token passes through."""

from __future__ import annotations

import pytest

from memcalc.models.read import read_model

BILLION = 10**9


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
