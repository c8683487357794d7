"""Device maps against transformers' own (5.24, `infer_auto_device_map` on meta tensors), and what each card then holds."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.device_map import HOST, place
from memcalc.engine.estimate import estimate
from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.read import read_run


def memory(*cards: int) -> dict[str, str]:
    return {**{str(i): f"{gib}GiB" for i, gib in enumerate(cards)}, "cpu": "100GiB"}


@pytest.mark.parametrize(
    ("model", "mode", "cards", "layers", "ends"),
    [
        ("llama-3.1-8b", "auto", (10, 10), (16, 16, 0), (0, 1, 1)),
        ("llama-3.1-8b", "sequential", (10, 10), (19, 13, 0), (0, 1, 1)),
        ("llama-3.1-8b", "balanced_low_0", (10, 10), (7, 24, 1), (0, HOST, HOST)),
        ("llama-3.1-8b", "auto", (6, 5), (9, 12, 11), (0, HOST, HOST)),
        ("llama-3.1-8b", "auto", (8,), (14, 0, 18), (0, HOST, HOST)),
        ("llama-3.2-1b", "auto", (1, 1), (3, 8, 5), (0, HOST, 0)),
        ("llama-3.2-1b", "sequential", (1, 2), (3, 13, 0), (0, 1, 0)),
    ],
)
def test_layers_are_where_transformers_puts_them(
    model: str, mode: str, cards: tuple[int, ...], layers: tuple[int, int, int], ends: tuple[int, int, int]
) -> None:
    """On the first card, the second and the host; then the token table, the last norm and the head, which goes with the table that it is tied to."""
    found = place(resolve(read_run(model, task="inference", device_map=mode, max_memory=memory(*cards))))
    where = [place for unit, place in zip(found.units, found.places, strict=True) if unit.block.role == "layer"]
    assert tuple(where.count(spot) for spot in (0, 1, HOST)) == layers
    assert tuple(place for unit, place in zip(found.units, found.places, strict=True) if unit.block.role != "layer") == ends


def mapped(model: str = "llama-3.1-8b", **keys: Any) -> Any:
    return estimate(read_run(model, **{"task": "inference", "device_map": "auto", "seq_len": 1024, **keys}))


def test_cards_share_what_one_would_hold() -> None:
    whole = estimate(read_run("llama-3.1-8b", task="inference", seq_len=1024))
    found = mapped(gpu="12GiB", gpus=2)
    for name in ("load", "decode"):
        held = [sum(t.bytes for t in i.terms if t.path.startswith(("weights", "kv_cache"))) for r in found.ranks for i in r.instants if i.name == name]
        assert sum(held) == sum(t.bytes for t in whole.instant(name).terms if t.path.startswith(("weights", "kv_cache")))
    assert [rank.rank for rank in found.ranks] == [{"device": 0}, {"device": 1}]
    assert "16 layers on card 0, 16 layers on card 1" in found.notes[-1]


def test_layers_on_the_host_run_on_the_first_card() -> None:
    """Their weights come one by one, the largest is the head's; their keys and values are on the card."""
    whole = estimate(read_run("llama-3.1-8b", task="inference", seq_len=1024))
    found = mapped(gpu="12GiB")
    terms = {term.path: term.bytes for term in found.instant("prefill").terms}
    assert terms["weights/from the host"] == 128_256 * 4096 * 2
    assert found.host_bytes + found.instant("load").allocated_bytes == whole.instant("load").allocated_bytes
    caches = [sum(t.bytes for t in answer.instant("decode").terms if t.path.startswith("kv_cache")) for answer in (found, whole)]
    assert caches[0] == caches[1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"gpu": None}, "give --gpu"),
        ({"tp": 2, "gpus": 2}, "one process"),
        ({"new_tokens": 4}, "new_tokens"),
        ({"max_memory": {"card": "1GiB"}}, "no place"),
        ({"device_map": None, "max_memory": {"0": "1GiB"}}, "give device_map"),
        ({"task": "train"}, "task inference"),
    ],
)
def test_what_cannot_be(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mapped(**{"gpu": "12GiB", **keys})
