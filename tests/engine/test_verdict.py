"""From allocated bytes to the card."""

from __future__ import annotations

from memcalc.engine.estimate import estimate
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
    free = estimate(read_run("llama-3.1-8b", seq_len=400_000, **(keys | {"gpu": None})))
    assert [rank.reserved_bytes for rank in free.ranks] == [rank.reserved_bytes for rank in answer.ranks]
