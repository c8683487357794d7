"""Embeddings: names and shapes of their tables."""

from __future__ import annotations

from memcalc.components import Embedding, Linear
from memcalc.specs.model import Axis, Component

H, VOCAB = Axis("hidden_size", 8), Axis("vocab_size", 30)


def shapes(component: Component) -> dict[str, tuple[int, ...]]:
    """Path and shape of each weight."""
    return {path: tuple(axis.size for axis in weight.shape) for path, weight in component.weights()}


def test_opt_350m_has_positions_as_wide_as_its_layers_and_tokens_as_wide_as_its_table() -> None:
    narrow = Axis("word_embed_proj_dim", 4)
    embedding = Embedding(VOCAB, narrow, positions=10, project=Linear("project_in", narrow, H), style="opt")
    assert shapes(embedding) == {"weight": (30, 4), "position/weight": (10, 8), "project_in/weight": (8, 4)}
    assert shapes(Embedding(VOCAB, narrow, positions=10, token_types=2, style="bert")) == {
        "weight": (30, 4),
        "position/weight": (10, 4),
        "token_type/weight": (2, 4),
    }
