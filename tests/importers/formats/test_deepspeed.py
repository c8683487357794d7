"""How DeepSpeed's JSON is known, and told from a trainer's file."""

from __future__ import annotations

import pytest

from memcalc.importers import import_text


@pytest.mark.parametrize("text", ['{"steps_per_print": 10, "fp16": {"enabled": true}}', '{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {}}}'])
def test_it_is_known_by_two_keys_that_every_one_has(text: str) -> None:
    assert import_text(text).files[0][1] == "DeepSpeed JSON"


def test_a_trainers_switches_are_none_of_its_blocks() -> None:
    assert import_text("bf16: true\nfp16: false\nmodel_name_or_path: llama-7b\n").files[0][1].startswith("TrainingArguments")
