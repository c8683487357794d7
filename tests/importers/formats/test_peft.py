"""PEFT's adapter_config.json where it leaves modules to PEFT, and AdaLoRA."""

from __future__ import annotations

import json

import pytest

from memcalc.errors import InputError
from memcalc.importers import Imported, import_text


def read(**keys: object) -> Imported:
    return import_text(json.dumps({"base_model_name_or_path": "llama-7b", **keys}))


def test_modules_that_are_not_named_are_pefts_own() -> None:
    found = read(peft_type="LORA", r=16, target_modules=None).layer.data["lora"]
    assert (found["target_modules"], found["r"]) == ("default", 16)


def test_adalora_begins_with_a_higher_rank() -> None:
    found = read(peft_type="ADALORA", target_r=8, init_r=24, target_modules=["q_proj"])
    assert found.layer.data["lora"]["r"] == 24
    assert any("LoRA of its first rank is counted" in line for line in found.unused)


def test_others_are_refused() -> None:
    with pytest.raises(InputError, match="peft_type VERA is not known to memcalc; accepted: LORA, ADALORA"):
        read(peft_type="VERA")
