"""Assisted decoding, against a traced ``generate`` of two tiny Llamas (transformers 5.24): a prompt of 1200 tokens, 20 guesses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run

SIZES = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 520, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 5000,
    "max_position_embeddings": 4096, "num_hidden_layers": 3,
}  # fmt: skip
SMALL = {**SIZES, "num_hidden_layers": 1, "hidden_size": 128, "intermediate_size": 200, "num_attention_heads": 4}


def saved(config: dict[str, Any], folder: Path) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def test_the_peak_is_the_first_check_of_all_guesses(tmp_path: Path) -> None:
    """Traced: 11,315,712 bytes of both models' weights, and 8,168,264 above them."""
    model, assistant = saved(SIZES, tmp_path / "model"), saved(SMALL, tmp_path / "assistant")
    found = estimate(read_run(model, task="inference", seq_len=1200, new_tokens=60, assistant_model=assistant))
    load = found.instant("load").allocated_bytes
    assert load == 11_315_712
    assert found.most_loaded.allocated_bytes - load == pytest.approx(8_168_264, rel=0.006)


@pytest.mark.parametrize(
    ("keys", "message"), [({"micro_batch": 2}, "one sequence"), ({"cache_implementation": "quantized"}, "cut back"), ({"tp": 2}, "tp and pp")]
)
def test_what_generate_refuses(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        estimate(read_run("llama-3.1-8b", task="inference", seq_len=512, assistant_model="llama-3.2-1b", **keys))


def test_guesses_without_an_assistant_are_listed() -> None:
    found = estimate(read_run("llama-3.2-1b", task="inference", seq_len=64, num_assistant_tokens=5))
    assert found.ignored == ("generation.num_assistant_tokens: there is no assistant_model",)
