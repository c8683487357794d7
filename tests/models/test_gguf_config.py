"""Models of GGUF files: sizes by llama.cpp's names, and as many parameters as there are elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.models.gguf import read_gguf
from memcalc.models.gguf_config import gguf_config
from memcalc.models.read import read_model
from tests.models.gguf_files import LLAMA, llama_tensors, write


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_the_tensors_elements(tied: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", LLAMA, llama_tensors(tied=tied))
    model = read_model(path)
    assert model.model_type == "llama"
    assert model.num_params == read_gguf(path).numel


def _renamed(name: str, **more: Any) -> dict[str, Any]:
    facts = {key.replace("llama.", f"{name}."): value for key, value in LLAMA.items()}
    return facts | {"general.architecture": name} | {f"{name}.{key.replace('__', '.')}": value for key, value in more.items()}


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("qwen3", {"attention__key_length": 128}, {"model_type": "qwen3", "head_dim": 128, "vocab_size": 5000}),
        ("llama", {"expert_count": 8, "expert_used_count": 2}, {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}),
        ("gemma3", {"attention__key_length": 256, "attention__sliding_window": 1024}, {"model_type": "gemma3_text", "sliding_window": 1024}),
        ("gpt-oss", {"expert_count": 32, "expert_feed_forward_length": 2880}, {"model_type": "gpt_oss", "intermediate_size": 2880}),
        (
            "deepseek2",
            {"attention__kv_lora_rank": 512, "rope__dimension_count": 64, "attention__key_length_mla": 192, "attention__value_length_mla": 128},
            {"model_type": "deepseek_v2", "kv_lora_rank": 512, "qk_nope_head_dim": 128, "v_head_dim": 128},
        ),
    ],
)
def test_names_of_architectures(name: str, more: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    found = gguf_config(write(tmp_path / "m.gguf", _renamed(name, **more), llama_tensors()))
    assert {key: found[key] for key in expected} == expected


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", _renamed("rwkv9"), llama_tensors())
    with pytest.raises(InputError, match="'rwkv9'; known: llama"):
        gguf_config(path)
