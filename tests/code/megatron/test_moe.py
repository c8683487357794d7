"""Mixtures of experts under Megatron: who gets how many rows."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.engine.result import RankEstimate
from memcalc.errors import ShardingError
from memcalc.units import GiB, MiB
from tests.engine.toy import job
from tests.engine.toy_gpt import mixture

SMALL: dict[str, Any] = {"hidden": 256, "heads": 8, "kv_heads": 4, "head_dim": 32, "width": 512}
ROWS = "activations/layers/mlp/experts/rows by expert"


def ranks(model: Any = None, **keys: Any) -> list[RankEstimate]:
    """Every kind of rank."""
    return list(estimate_job(job(model or mixture(**SMALL), **{"code": "megatron", **keys})).ranks)


def at(rank: RankEstimate, path: str, name: str = "forward_end") -> int:
    """Bytes of a path at an instant."""
    return sum(t.bytes for i in rank.instants if i.name == name for t in i.terms if t.path == path)


def test_even_routing_gives_every_rank_as_many_rows_as_it_sends() -> None:
    """Four layers, 128 tokens, two experts each."""
    (rank,) = ranks(ep=4, gpus=4)
    assert at(rank, ROWS) == 4 * 128 * 2 * 256 * 2


def test_a_busy_rank_gets_its_multiple_and_the_others_share_the_rest() -> None:
    """70 % of the tokens on one of four ranks are 2.8 times the even share; both kinds of rank are shown, the busy one first."""
    hot, cold = ranks(ep=4, gpus=4, expert_imbalance=2.8)
    (even,) = ranks(ep=4, gpus=4)
    assert (hot.rank, hot.num_ranks, cold.rank, cold.num_ranks) == ({"pp": 0, "ep": 0}, 1, {"pp": 0, "ep": 1}, 3)
    assert at(hot, ROWS) / at(even, ROWS) == pytest.approx(2.8, rel=1e-3)
    assert at(cold, ROWS) / at(even, ROWS) == pytest.approx(0.4, rel=1e-2)


def test_transformers_experts_know_it_too() -> None:
    """The imbalance is not Megatron's alone."""
    hot, cold = ranks(code="transformers", ep=4, gpus=4, expert_imbalance=2.8)
    assert hot.instants[2].allocated_bytes > cold.instants[2].allocated_bytes


def test_capacity_bounds_the_busy_rank() -> None:
    """With a factor of 1.25 it gets 1.25 times the even share, and what is over is dropped."""
    hot, cold = ranks(ep=4, gpus=4, expert_imbalance=2.8, capacity_factor=1.25)
    assert at(hot, ROWS) * 4 == pytest.approx(5 * 4 * 128 * 2 * 256 * 2)
    padded = ranks(ep=4, gpus=4, expert_imbalance=2.8, capacity_factor=1.25, moe_pad_expert_input_to_capacity=True)
    assert len({at(rank, ROWS) for rank in padded}) == 1
    assert at(cold, ROWS) < at(padded[0], ROWS)


def test_no_rank_is_busier_than_all_together() -> None:
    """Four times the even share is every token."""
    with pytest.raises(ShardingError, match="with ep 4 it is at most 4"):
        ranks(ep=4, gpus=4, expert_imbalance=5)


def test_experts_are_shared_and_so_are_their_states() -> None:
    """Expert data parallelism is world / (etp · ep · pp): two ranks hold each expert here, eight each dense parameter."""
    (rank,) = ranks(ep=4, gpus=8, zero=1)
    experts = 4 * 8 * 3 * 256 * 512
    assert at(rank, "gradients/main_grad of experts", "start") == 4 * experts // 4
    assert at(rank, "optimizer/exp_avg of experts", "start") == 4 * experts // 4 // 2


def test_gathering_all_tokens_costs_more_than_exchanging_rows() -> None:
    """At the peak of the forward pass, with many ranks."""
    few, many = ranks(ep=8, gpus=8), ranks(ep=8, gpus=8, moe_token_dispatcher_type="allgather")
    assert many[0].allocated_bytes > few[0].allocated_bytes


@pytest.mark.accuracy
@pytest.mark.parametrize(("tp", "micro_batch", "real", "real_model"), [(2, 1, 6.6, 5.3), (2, 2, 8.0, 5.3), (1, 1, 11.2, 8.8), (1, 2, 13.8, 8.8)])
def test_a_measured_mixture(tp: int, micro_batch: int, real: float, real_model: float) -> None:
    """Mixtral reduced to four layers on eight cards, GiB (mbridge's README).

    The code of that time differs from today's in two ways that can be counted: gradients' stand-ins were not kept, and the router's
    scores were multiplied in when rows were put together, which saved the rows once more. With both set right the model is within its
    one decimal, and so are three of the four totals; the fourth is 0.1 off.
    """
    model = mixture()
    (rank,) = ranks(model, tp=tp, sp=tp > 1, gpus=8, zero=1, micro_batch=micro_batch, seq_len=4096, attention="flash_attention_2")
    dummies = at(rank, "buffers/dummy weight gradients", "start")
    rows = 4 * 4096 * micro_batch * 2 * 2048 * 2 // tp
    start = next(i.allocated_bytes for i in rank.instants if i.name == "start")
    assert (start - dummies) / GiB == pytest.approx(real_model, abs=0.065)
    assert (rank.allocated_bytes - dummies + rows) / GiB == pytest.approx(real, abs=0.11)
    assert rank.allocated_bytes / GiB == pytest.approx(real, rel=0.025)
    assert rows <= 256 * MiB
