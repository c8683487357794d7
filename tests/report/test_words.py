"""Phrases of servers."""

from __future__ import annotations

from dataclasses import replace

from memcalc.engine.result import Serving, Verdict
from memcalc.report.style import unit_for
from memcalc.report.words import other_keys, serving_lines, verdict_line

SERVING = Serving("vllm", "bfloat16, blocks of 16", 72 * 2**30, 50 * 2**30, 131_072, 409_600, 16, 16_000, 16_000 * 131_072, 25.6, 131_072)


def test_a_pool_is_told_in_bytes_tokens_and_sequences() -> None:
    assert serving_lines(SERVING, unit_for(2**40 // 16)) == [
        "50.00 GiB of cache on each card: 409,600 tokens of 131,072 bytes (bfloat16, blocks of 16)",
        "25.60 sequences of 16,000 tokens (1.95 GiB each); the longest that fits: 131,072",
    ]


def test_states_are_not_told_in_tokens() -> None:
    lines = serving_lines(replace(SERVING, token_bytes=0, sequence_bytes=12 * 2**20), unit_for(2**40))
    assert lines[0] == "50.00 GiB of cache on each card: states of sequences, as large at any length (bfloat16, blocks of 16)"
    assert "(12.00 MiB each)" in lines[1]


def test_a_cache_on_the_host_is_told() -> None:
    assert serving_lines(replace(SERVING, sequence_bytes=0), unit_for(2**40)) == ["no cache on the cards: it stays on the host with its layers"]


def test_a_refusal_is_told_where_the_card_has_room() -> None:
    assert verdict_line(Verdict("h100-80g", 80, 60, refusal="no available memory")) == "does not start on h100-80g: no available memory"


def test_a_card_that_is_too_small_says_by_how_much_instead() -> None:
    assert "too much" in verdict_line(Verdict("h100-80g", 60, 80, refusal="no available memory"))


def test_a_section_that_is_there_with_its_defaults_is_named() -> None:
    assert other_keys({"liger": {}, "grad_accum": 8}) == ["liger on", "grad_accum 8"]
    assert other_keys({"liger": {"rope": False}}) == ["liger.rope off"]
