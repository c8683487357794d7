"""Layers by stage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.engine.ranks import even, from_layout, pieces_of, stages_of, uneven
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError, ShardingError
from memcalc.specs.read import read_run
from tests.engine.toy import job, llama


@given(st.integers(1, 130), st.integers(1, 16))
def test_every_layer_is_on_one_stage(layers: int, stages: int) -> None:
    """Whatever divides or not, no layer is lost, and stages differ by one layer at most, the ends apart."""
    if layers < stages:
        return
    counts, note = even("toy", layers, stages=stages, chunks=1)
    spread = [n for stage in counts for n in stage]
    assert sum(spread) == layers
    assert max(spread) - min(spread) <= 1
    assert bool(note) == bool(layers % stages)


def test_the_two_ends_stand_for_a_layer_each_where_that_divides() -> None:
    """Llama 3.1 405B has 126 layers for 16 stages of 8 (Llama team 2024, section 3.3.2)."""
    counts, note = even("toy", 126, stages=16, chunks=1)
    assert counts == ((7,), *((8,),) * 14, (7,))
    assert "embedding and loss" in note


def test_too_few_layers_name_the_most_stages() -> None:
    """Eight layers cannot be cut into nine."""
    with pytest.raises(ShardingError, match="the most stages it can have is 8"):
        even("toy", 8, stages=9, chunks=1)


def test_chunks_that_do_not_divide_name_those_that_do() -> None:
    """Eight layers on two stages can be cut into chunks of four, two and one."""
    with pytest.raises(ShardingError, match=r"vpp can be 1, 2, 4$"):
        even("toy", 8, stages=2, chunks=3)


def test_uneven_ends_leave_the_rest_to_the_others() -> None:
    """As Megatron's --decoder-first-pipeline-num-layers and its sibling."""
    assert uneven(61, stages=16, chunks=1, first=3, last=2) == ((3,), *((4,),) * 14, (2,))
    with pytest.raises(ShardingError, match="must divide over them"):
        uneven(61, stages=16, chunks=1, first=3, last=3)


def test_a_layout_is_read_as_megatron_writes_it() -> None:
    """Repetitions of letters and of groups; the embedding and the loss are no layers."""
    assert from_layout("Et*3|(tt|)*29,m|L", 61, stages=16, chunks=2)[0] == (3, 2)
    with pytest.raises(ShardingError, match="has 4 pieces"):
        from_layout("Ett|tt|tt|L", 6, stages=2, chunks=1)
    with pytest.raises(InputError, match="not a pipeline layout"):
        from_layout("abc", 6, stages=2, chunks=1)


@pytest.mark.parametrize("layout", ["t*999999999", "((t*999999)*999999)*999999", "Et*99999|L"])
def test_a_layout_longer_than_any_model_is_refused(layout: str) -> None:
    with pytest.raises(InputError, match="not a pipeline layout"):
        pieces_of(layout)


def test_a_layout_says_how_many_chunks_a_stage_has() -> None:
    """Megatron takes virtual stages from its pieces."""
    keys = {"code": "megatron", "engine": "megatron", "pp": 4, "seq_len": 128, "pipeline_model_parallel_layout": "Ett|(tt|)*6ttL"}
    assert resolve(read_run("llama-3.2-1b", **keys)).mesh.vpp == 2


def test_interleaved_chunks_go_round_the_stages() -> None:
    """With eight layers, two stages and two chunks each, stage 0 has layers 0, 1, 4, 5 (Megatron-core, get_num_layers_to_build)."""
    first, last = stages_of(job(llama(), pp=2, vpp=2))
    assert [[(b.path, b.repeat) for b in chunk] for chunk in first.chunks] == [[("embed_tokens", 1), ("layers", 2)], [("layers", 2)]]
    assert [[(b.path, b.repeat) for b in chunk] for chunk in last.chunks] == [[("layers", 2)], [("layers", 2), ("norm", 1), ("lm_head", 1)]]


@pytest.mark.parametrize("tied", [False, True])
def test_stages_sum_to_the_model(tied: bool) -> None:
    """A tied table is on both ends; everything else is on one stage."""
    model = llama(tied=tied)
    held = sum(block.num_params for stage in stages_of(job(model, pp=4)) for chunk in stage.chunks for block in chunk)
    assert held == model.num_params + (model.vocab_size * model.hidden_size if tied else 0)
