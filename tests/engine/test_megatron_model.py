"""The model as Megatron builds it."""

from __future__ import annotations

import pytest

from memcalc.components import Embedding, Head
from memcalc.components.moe import MoE
from memcalc.components.mtp import MultiTokenHead
from memcalc.engine.megatron_model import build, with_predictions
from memcalc.errors import InputError
from memcalc.specs.model import Component
from tests.engine.toy import job, llama
from tests.engine.toy_gpt import mixture


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ({}, 1024),
        ({"tp": 4}, 1024),
        ({"tp": 8}, 1024),
        ({"make_vocab_size_divisible_by": 1}, 1000),
        ({"tp": 2, "make_vocab_size_divisible_by": 600}, 1200),
    ],
    ids=str,
)
def test_the_vocabulary_is_padded_to_equal_parts(keys: dict[str, int], rows: int) -> None:
    """Of the table and of the output layer."""
    modules = [block.module for block in build(job(llama(), code="megatron", **keys))]
    assert [m.vocab.size for m in modules if isinstance(m, Embedding)] == [rows]
    assert [m.proj.outputs.size for m in modules if isinstance(m, Head)] == [rows]


def test_routers_are_held_as_all_weights_are() -> None:
    """Whatever the model's own code does."""

    def gates(component: Component) -> list[str | None]:
        return [m.gate.dtype for m in (getattr(component, "mlp", None),) if isinstance(m, MoE)]

    assert {dtype for block in build(job(mixture(), code="megatron")) for dtype in gates(block.module)} == {None}


def test_prediction_modules_take_the_place_of_the_head() -> None:
    """With the table and the head of the model inside."""
    blocks = build(job(llama(), code="megatron", mtp_num_layers=2))
    head = blocks[-1].module
    assert isinstance(head, MultiTokenHead)
    assert len(head.modules) == 2
    assert head.embedding == blocks[0].module


def test_there_are_none_where_there_is_no_layer_to_copy() -> None:
    """An error in the user's words."""
    blocks = tuple(block for block in llama().blocks if block.role != "embedding")
    with pytest.raises(InputError, match="no prediction modules"):
        with_predictions(blocks, 1)
