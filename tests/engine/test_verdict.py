"""From allocated bytes to the card."""

from __future__ import annotations

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run


def test_micro_batches_in_flight_take_their_own_room_and_no_more() -> None:
    """The last stage has one in flight: of an 80 GB card it leaves some 20 GiB, so no segment is refused."""
    keys = {"code": "megatron", "tp": 8, "pp": 2, "sp": True, "gpus": 64, "zero": 1, "recompute": "full", "gpu": "h100-80g"}
    answer = estimate(read_run("llama-3.1-8b", seq_len=400_000, **keys))
    last, first = answer.ranks
    assert (last.rank, first.rank) == ({"pp": 1}, {"pp": 0})
    assert answer.verdict is not None
    assert answer.verdict.fits
    assert all(rank.reservation.num_releases == 0 for rank in answer.ranks)
    free = estimate(read_run("llama-3.1-8b", seq_len=400_000, **(keys | {"gpu": "h200-141g"})))
    assert [rank.reserved_bytes for rank in free.ranks] == [rank.reserved_bytes for rank in answer.ranks]


@pytest.mark.parametrize(("host_memory", "fits", "tight"), [(None, True, False), ("1000GB", True, False), ("744GB", True, True), ("670GB", False, False)])
def test_a_host_with_too_little_is_no_whatever_room_the_card_has(host_memory: str | None, fits: bool, tight: bool) -> None:
    """Stage 3 with everything offloaded keeps 737 GB of Qwen2.5-32B on its host; 744 GB were killed by the kernel (hiyouga/LlamaFactory#6755)."""
    keys = {"zero": 3, "offload_params": "cpu", "offload_optimizer": "cpu", "gpus": 1, "gpu": "h100-nvl-94g", "recompute": "full", "seq_len": 512}
    answer = estimate(read_run("qwen2.5-32b", host_memory=host_memory, **keys))
    assert answer.verdict is not None
    assert (answer.verdict.fits, answer.verdict.tight) == (fits, tight)
    assert ("each node's host would need" in answer.verdict.refusal) == (not fits)
    assert (answer.host_capacity_bytes is None) == (host_memory is None)


def test_what_is_no_size_of_a_host_is_refused() -> None:
    with pytest.raises(InputError, match=r"hardware\.host_memory: 'much' is not a size"):
        estimate(read_run("pythia-70m", host_memory="much"))
