"""Weights of the components: names, shapes, cuts."""

from __future__ import annotations

from memcalc.components import Conv1D, Embedding, Head, LayerNorm, Linear, MaskedHead, RMSNorm
from memcalc.specs.model import Axis, Component

H, WIDE, VOCAB = Axis("hidden_size", 8), Axis("intermediate_size", 12), Axis("vocab_size", 30)


def shapes(component: Component) -> dict[str, tuple[int, ...]]:
    """Path and shape of each weight."""
    return {path: tuple(axis.size for axis in weight.shape) for path, weight in component.weights()}


def test_a_conv1d_holds_its_weight_the_other_way_round_and_is_cut_there() -> None:
    """GPT-2's (in, out); columns are its second axis, rows its first."""
    column, row = (Conv1D("c", H, WIDE, bias=True, split=split) for split in ("column", "row"))
    assert shapes(column) == {"weight": (8, 12), "bias": (12,)}
    assert [weight.cuts for weight in column.own_weights()] == [(("column", 1),), (("column", 0),)]
    assert [weight.cuts for weight in row.own_weights()] == [(("row", 0),), ()]


def test_norms_have_the_weights_of_their_style() -> None:
    assert shapes(RMSNorm(H, "gemma")) == {"weight": (8,)}
    assert shapes(RMSNorm(H, "unscaled")) == shapes(LayerNorm(H, style="upcast")) == {}
    assert shapes(LayerNorm(H, bias=False)) == {"weight": (8,)}
    assert shapes(LayerNorm(H, bias=False, heads=Axis("heads", 3))) == {"weight": (3, 8)}


def test_tied_heads_leave_the_table_to_the_embedding() -> None:
    """Their biases are their own; BERT has one that nothing uses when the table is not shared."""
    proj = Linear("decoder", H, VOCAB, bias=True)
    assert shapes(Head(proj, tied=True)) == {"decoder/bias": (30,)}
    masked = {tied: shapes(MaskedHead(Linear("dense", H, H, bias=True), LayerNorm(H), proj, tied=tied, loose_bias=not tied)) for tied in (True, False)}
    assert masked[True] == {"dense/weight": (8, 8), "dense/bias": (8,), "norm/weight": (8,), "norm/bias": (8,), "decoder/bias": (30,)}
    assert masked[False] == {"bias": (30,), **masked[True], "decoder/weight": (30, 8)}


def test_opt_350m_has_positions_as_wide_as_its_layers_and_tokens_as_wide_as_its_table() -> None:
    narrow = Axis("word_embed_proj_dim", 4)
    embedding = Embedding(VOCAB, narrow, positions=10, project=Linear("project_in", narrow, H), style="opt")
    assert shapes(embedding) == {"weight": (30, 4), "position/weight": (10, 8), "project_in/weight": (8, 4)}
    assert shapes(Embedding(VOCAB, narrow, positions=10, token_types=2, style="bert")) == {
        "weight": (30, 4),
        "position/weight": (10, 4),
        "token_type/weight": (2, 4),
    }
