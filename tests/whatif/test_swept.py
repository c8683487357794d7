"""Sweeps held against a card."""

from __future__ import annotations

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import Layer, key_layer, merged
from memcalc.whatif.swept import run_of, swept, usable


def layers(**keys: object) -> list[Layer]:
    return [Layer({"model": "llama-7b"}), key_layer(keys)]


def test_a_verdict_is_that_of_the_single_run_before_the_allocator() -> None:
    asked = layers(gpu="a100-80g", recompute="full")
    found = swept(asked, {"seq-len": (1024, 8192, 65536), "micro-batch": (1, 3)})
    rows = list(found.combinations())
    assert len(rows) == 6
    for row in rows:
        alone = estimate(merged([*asked, key_layer(row.values)]))
        rank = alone.most_loaded
        assert row.peak_bytes == rank.allocated_bytes
        assert row.instant == rank.peak.name
        assert row.need_bytes == rank.allocated_bytes + sum(term.bytes for term in rank.device)
        assert alone.verdict is not None
        assert row.capacity_bytes == alone.verdict.capacity_bytes
        assert row.fits or not alone.verdict.fits
    assert {row.fits for row in rows} == {True, False}


def test_the_narrower_of_card_and_limit_counts() -> None:
    found = swept(layers(gpu="a100-80g"), {"seq-len": (512, 1024)}, limit_bytes=2**30)
    assert found.counts() == {"fits": 0, "does not fit": 2, "invalid": 0, "unjudged": 0}


def test_nothing_is_judged_without_a_card() -> None:
    assert swept(layers(), {"seq-len": (512, 1024)}).counts()["unjudged"] == 2


def test_what_cannot_be_is_counted_with_its_reason() -> None:
    found = swept(layers(), {"tp": (1, 3, 5)})
    assert found.counts()["invalid"] == 2
    assert len(found.reasons()) == 2
    assert [row.values["tp"] for row in found.chosen(only="invalid")] == [3, 5]
    assert [row.values["tp"] for row in found.chosen()] == [1]


def test_lengths_that_a_model_cannot_have_leave_the_others_be() -> None:
    found = swept([Layer({"model": "gpt2"})], {"seq-len": (512, 4096, 1024, 2048), "micro-batch": (1, 2)})
    assert found.counts()["invalid"] == 4
    assert {row.values["seq_len"] for row in found.chosen()} == {512, 1024}
    assert len(found.reasons()) == 2
    assert all("[" not in reason for reason in found.reasons())


def test_a_sweep_of_which_nothing_can_be_is_an_error() -> None:
    with pytest.raises(InputError, match="32 attention heads"):
        swept(layers(), {"tp": (3, 5)})


def test_rows_are_sorted_and_filtered() -> None:
    found = swept(layers(gpu="a100-80g"), {"seq-len": (65536, 1024, 16384)})
    assert [row.values["seq_len"] for row in found.chosen(sort="peak")] == [1024, 16384, 65536]
    assert [row.values["seq_len"] for row in found.chosen(sort="-seq-len")] == [65536, 16384, 1024]
    assert [row.values["seq_len"] for row in found.chosen(only="fits")] == [1024]
    with pytest.raises(InputError, match="not swept"):
        found.chosen(sort="tp")


def test_models_and_switches_are_axes_like_others() -> None:
    run = run_of([], {"model": "llama-7b", "sp": "true", "micro_batch": 4})
    assert (run.model, run.sharding.sp, run.micro_batch) == ("llama-7b", True, 4)
    with pytest.raises(InputError, match="true or false"):
        run_of([], {"model": "llama-7b", "sp": "perhaps"})


def test_a_margin_stays_free() -> None:
    found = swept(layers(gpu="a100-80g"), {"seq-len": (512,)}, margin=0.25)
    (row,) = found.combinations()
    assert row.capacity_bytes is not None
    assert row.room_bytes == usable(row.capacity_bytes, 0.25)
