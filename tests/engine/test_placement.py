"""Device maps against transformers' own (5.24, `infer_auto_device_map` on meta tensors)."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.placement import HOST, place
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


def layers(model: str, **keys: Any) -> list[int]:
    found = place(resolve(read_run(model, device_map="auto", **keys)))
    where = [place for unit, place in zip(found.units, found.places, strict=True) if unit.block.role == "layer"]
    return [where.count(card) for card in sorted(set(where))]


LORA = {"lora": {"r": 8, "target_modules": "all-linear"}}


def test_packed_layers_are_placed_by_the_bits_of_their_values() -> None:
    """4-bit layers of 0.109 GB beside tables of 1.05 GB: an even share of 5.6 GB, and 1.25 tables, of which a tenth is left for buffers (adjust_max_memory)."""
    table, layer, norms = 128_256 * 4096 * 2, 218_103_808 // 2 + 4 * 4096, 8192
    share = int(0.9 * ((32 * layer + norms + 2 * table) // 2 + int(1.25 * table)))
    first = (share - table - table) // layer  # the largest that follows must still have room on the first card
    assert layers("llama-3.1-8b", quantization="nf4", gpus=2, seq_len=64, **LORA) == [first, 32 - first]


@pytest.mark.parametrize("keys", [{"quantization": "nf4", **LORA}, {}])
def test_the_last_card_takes_what_cannot_wait_on_the_host(keys: dict[str, Any]) -> None:
    """Packed layers and those that are trained are on cards, whether or not these have room."""
    assert sum(layers("llama-3.1-8b", gpu="2GiB", gpus=2, seq_len=64, **keys)) == 32


def test_adapters_come_after_layers_are_placed() -> None:
    assert layers("llama-3.1-8b", gpus=2, seq_len=64, **LORA) == layers("llama-3.1-8b", gpus=2, seq_len=64)


def test_cards_to_be_filled_are_named() -> None:
    with pytest.raises(InputError, match="filled one after the other"):
        place(resolve(read_run("llama-3.1-8b", task="inference", device_map="sequential", gpus=2)))
