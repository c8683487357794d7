"""transformers' kinds of cache on a model of two layers: what is on the card and on the host."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run

TOKEN = 131_072
"""Bytes of Llama-3.1-8B's cache for one token, in 32 layers."""


def answer(**keys: Any) -> Estimate:
    return estimate(read_run("llama-3.1-8b", **{"task": "inference", "seq_len": 2048, **keys}))


def cache(found: Estimate, name: str = "decode") -> int:
    return sum(term.bytes for term in found.instant(name).terms if term.path.startswith("kv_cache"))


def test_a_static_cache_has_room_for_all_that_will_come() -> None:
    """But for the last token, which is fed to nobody; or for more, where it is told so."""
    assert cache(answer(cache_implementation="static", new_tokens=512)) == (2048 + 511) * TOKEN
    assert cache(answer(cache_implementation="static", new_tokens=512, max_cache_len=8192)) == 8192 * TOKEN


@pytest.mark.parametrize(("keys", "size"), [({}, 36 / 128), ({"cache_nbits": 2}, 20 / 128), ({"cache_backend": "fp8"}, 0.5), ({"q_group_size": 32}, 20 / 64)])
def test_a_quantized_cache_packs_the_prompt(keys: dict[str, Any], size: float) -> None:
    """Groups of 64 with a 16-bit scale and shift, or a byte for each value."""
    assert cache(answer(cache_implementation="quantized", **keys)) == 2048 * TOKEN * size


def test_new_tokens_wait_until_all_is_packed_again() -> None:
    """Of 200 new ones, 199 are fed: 128 are packed, 71 wait as they are."""
    grown = cache(answer(cache_implementation="quantized", new_tokens=200), "generate") - 2 * 2247 * TOKEN // 32
    assert grown == (2048 + 128) * TOKEN * 36 // 128 + 71 * TOKEN


@pytest.mark.parametrize(("kind", "tokens"), [("offloaded", 2048), ("offloaded_static", 2048 + 511)])
def test_layers_wait_on_the_host_and_the_next_one_is_fetched(kind: str, tokens: int) -> None:
    found = answer(cache_implementation=kind, new_tokens=512)
    assert cache(found) == tokens * TOKEN // 32
    assert found.host_bytes == (2048 + 511) * TOKEN
    assert cache(found, "prefill") < cache(answer(), "prefill")


def test_windows_of_a_static_cache_stay_on_the_card() -> None:
    """Gemma 3: of 26 layers four see all tokens, and one of those is on the card."""
    found = estimate(read_run("gemma-3-1b", task="inference", seq_len=2048, cache_implementation="offloaded_static"))
    assert cache(found) == (22 * 512 + 2048) * 2 * 256 * 2


def test_what_cannot_be_is_refused() -> None:
    for keys, message in (
        ({"model": "gemma-3-1b", "cache_implementation": "quantized"}, "see all tokens"),
        ({"cache_implementation": "quantized", "cache_nbits": 3}, "quanto packs 2, 4"),
        ({"cache_implementation": "static", "task": "train"}, "task inference"),
    ):
        with pytest.raises(InputError, match=message):
            estimate(read_run(str(keys.pop("model", "llama-3.2-1b")), **{"task": "inference", **keys}))


def test_keys_of_another_kind_are_listed() -> None:
    assert answer(max_cache_len=4096, cache_nbits=2).ignored == (
        "generation.cache_nbits: the cache is dynamic",
        "generation.max_cache_len: the cache is dynamic",
    )
