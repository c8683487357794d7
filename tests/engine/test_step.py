"""Every instant of a step is made of tensors that are there."""

from __future__ import annotations

import pytest

from memcalc.engine.estimate import estimate
from memcalc.models.catalogue import names
from memcalc.models.read import read_model
from memcalc.specs.read import read_run


def one_of_each_kind() -> list[str]:
    """Of the catalogue's models, one of each type with a table at either end, and one with a table for both."""
    return sorted({(model.model_type, model.tied): model.name for model in map(read_model, names()) if model.vocab_size}.values())


@pytest.mark.parametrize(
    ("keys", "models"),
    [
        ({"engine": "deepspeed", "zero": 1, "dp": 2}, []),
        ({"engine": "fsdp1", "dp": 4}, ["gpt2", "llama-4-scout", "llava-1.5-7b", "t5-small"]),
        ({"engine": "deepspeed", "zero": 1, "dp": 2, "tp": 2}, ["bloom-560m", "llama-4-scout", "llava-1.5-7b", "qwen2-0.5b", "t5-small"]),
        ({"lora_r": 8}, ["gpt2", "llama-4-scout", "llava-1.5-7b", "t5-small"]),
    ],
    ids=["zero1", "fsdp1", "tp", "lora"],
)
def test_no_term_of_any_instant_is_negative(keys: dict[str, object], models: list[str]) -> None:
    """What goes was there, under the same name; held against one model of each kind where none is named."""
    below = {
        (model, instant.name, term.path): term.bytes
        for model in models or one_of_each_kind()
        for instant in estimate(read_run(model, seq_len=64, **keys)).most_loaded.instants
        for term in instant.terms
        if term.bytes < 0
    }
    assert below == {}
