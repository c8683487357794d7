"""Degrees that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.degrees import check_degrees
from memcalc.engine.resolve import mesh_of, resolve
from memcalc.errors import InputError, ShardingError
from memcalc.models.read import read_model
from memcalc.specs.read import read_run
from tests.engine.toy import llama


def check(**keys: Any) -> list[str]:
    """Eight layers, eight heads, four KV heads."""
    run = read_run({"model": "toy"}, **keys)
    return check_degrees(run, llama(), mesh_of(run))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tp": 3}, r"sharding.tp: toy has 8 attention heads, which tp 3 does not divide; the nearest that do: 2, 4"),
        ({"tp": 8}, r"sharding.tp: toy has 4 KV heads, which tp 8 does not divide; the nearest that do: 2, 4"),
        ({"ep": 2}, r"sharding.ep: toy has no experts for ep 2 to spread; ep can be 1"),
        ({"pp": 9}, r"sharding.pp: toy has 8 layers, too few for pp 9; the most stages it can have is 8"),
        ({"pp": 2, "vpp": 3}, r"sharding.vpp: 8 layers do not divide over pp 2 \* vpp 3 = 6 pieces; vpp can be 1, 2, 4"),
        ({"vpp": 2}, r"sharding.vpp: vpp 2 cuts pipeline stages into chunks, and pp is 1"),
        ({"cp": 4, "seq_len": 1022}, r"sharding.cp: seq_len 1022 does not divide into 4 parts for cp 4; the nearest that do: 1020, 1024"),
        ({"cp": 4, "seq_len": 1028, "code": "megatron"}, r"sharding.cp: seq_len 1028 does not divide into 8 parts for cp 4; the nearest that do: 1024, 1032"),
        ({"cp": 3, "cp_comm_type": "a2a", "code": "megatron"}, r"sharding.cp: 8 heads are on each rank, which cp 3 does not divide; the nearest that do: 2, 4"),
        (
            {"cp": 8, "cp_comm_type": "a2a", "code": "megatron"},
            r"sharding.cp: 4 KV heads are on each rank, which cp 8 does not divide; the nearest that do: 2, 4",
        ),
    ],
)
def test_the_error_names_what_can_be(keys: dict[str, Any], message: str) -> None:
    """One line with the place, the reason and the nearest degrees."""
    with pytest.raises(ShardingError, match=message):
        check(**keys)


def test_megatron_ranks_share_a_kv_head() -> None:
    """More tensor-parallel ranks than KV heads are fine there, as long as they divide evenly."""
    assert check(tp=8, code="megatron") == []


def test_what_was_assumed_is_said() -> None:
    """An open number of micro-batches, and layers that do not divide."""
    assert len(check(pp=3)) == 2
    assert check(pp=4, grad_accum=8) == []


@pytest.mark.parametrize(("keys", "dp"), [({"ep": 8}, 8), ({"ep": 4, "tp": 2}, 4), ({"ep": 2, "etp": 1, "tp": 2}, 1), ({"ep": 4, "gpus": 8}, 8)])
def test_experts_bring_the_ranks_that_they_spread_over(keys: dict[str, int], dp: int) -> None:
    """Where neither dp nor gpus says how many there are; and it is said."""
    run = read_run("mixtral-8x7b", code="megatron", **keys)
    mesh = mesh_of(run)
    assert mesh.dp == dp
    said = check_degrees(run, read_model(run.model), mesh)
    assert any("the fewest ranks" in line for line in said) == ("gpus" not in keys)


def test_two_stacks_are_in_one_stage() -> None:
    with pytest.raises(ShardingError, match="encoder and a decoder"):
        resolve(read_run("t5-small", pp=2, gpus=2))


@pytest.mark.parametrize(("keys", "said"), [({}, "cuts experts as tp"), ({"code": "megatron"}, "etp 4 itself does not divide them")])
def test_tensor_parallelism_of_experts_is_megatrons_and_divides_the_ranks(keys: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(read_run("mixtral-8x7b", gpus=2, etp=4, **keys))
