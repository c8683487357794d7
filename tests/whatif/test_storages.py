"""Counting storages from birth to death."""

from __future__ import annotations

import pytest

from memcalc.whatif.storages import Storages


@pytest.mark.torch
def test_views_share_and_the_dead_are_gone() -> None:
    import torch

    storages = Storages()
    with storages.counting():
        a = torch.zeros(10, 10)
        b = a.view(100)
        assert storages.now == 400
        storages.mark()
        c = a + 1
        assert (storages.now, storages.peak) == (800, 800)
        del a
        assert storages.now == 800
        del b
        assert storages.now == 400
        (holding,) = storages.holdings()
        assert (holding.operator, holding.dtype, holding.shape, holding.total_bytes) == ("add", "float32", (10, 10), 400)
        del c
    assert (storages.now, storages.peak) == (0, 800)


@pytest.mark.torch
def test_a_watch_takes_down_who_is_alive_at_its_mark() -> None:
    import torch

    storages = Storages()
    with storages.counting():
        storages.watch(1200)
        a = torch.ones(100)
        b = a + 1
        c = b * 2
        del b
        d = a + c
        assert [holding.operator for holding in storages.caught()] == ["ones", "add", "mul"]
        del a, c, d
