"""Commands of llama.cpp."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.specs.read import merged


def run_of(command: str) -> dict[str, Any]:
    return merged([import_files([], command=shlex.split(command)).layer]).as_dict()


def test_the_context_is_of_all_sequences() -> None:
    found = run_of("llama-server -m model.gguf -c 32768 -np 4 -ngl 20 -ctk q8_0 --cache-type-v q4_0 -ub 1024 -fa off --port 8080")
    assert (found["task"], found["code"], found["seq_len"], found["micro_batch"]) == ("inference", "llamacpp", 8192, 4)
    served = {key: found["serving"][key] for key in ("n_gpu_layers", "cache_type_k", "cache_type_v", "ubatch_size", "flash_attn")}
    assert served == {"n_gpu_layers": 20, "cache_type_k": "q8_0", "cache_type_v": "q4_0", "ubatch_size": 1024, "flash_attn": False}


@pytest.mark.parametrize("value", ["all", "auto", "-1"])
def test_all_layers_are_on_the_cards(value: str) -> None:
    found = run_of(f"llama-cli -m model.gguf -c 0 --n-gpu-layers {value} -fa auto")
    assert "n_gpu_layers" not in found.get("serving", {})
    assert "seq_len" not in found


def test_no_number_of_layers_is_refused() -> None:
    with pytest.raises(InputError, match="accepted: a number, all or auto"):
        run_of("llama-server -m model.gguf -ngl many")


def test_what_is_not_counted_is_said() -> None:
    found = import_files([], command=shlex.split("llama-server -m model.gguf -ot exps=CPU -md draft.gguf"))
    assert [note.partition(":")[0] for note in found.unused] == ["-ot", "-md"]


@pytest.mark.parametrize(
    ("flag", "model", "quantization"),
    [
        ("-m /models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "/models/Meta-Llama-3.1-8B-Instruct", "q4_k_m"),
        ("-m tinyllama-1.1b-chat-v1.0.Q8_0.gguf", "tinyllama-1.1b-chat-v1.0", "q8_0"),
        ("-m ~/models/gemma-3-27b-it-q4_0-00001-of-00002.gguf", "~/models/gemma-3-27b-it", "q4_0"),
        ("-m model.gguf", "model.gguf", None),
        ("-hf unsloth/Qwen3-8B-GGUF:UD-Q5_K_M", "unsloth/Qwen3-8B-GGUF", "q5_k_m"),
        ("-hf unsloth/Qwen3-8B-GGUF", "unsloth/Qwen3-8B-GGUF", "q4_k_m"),
    ],
)
def test_a_file_or_repository_is_taken_by_its_name(flag: str, model: str, quantization: str | None) -> None:
    found = run_of(f"llama-server {flag} -c 4096")
    assert (found["model"], found.get("quantization")) == (model, quantization)
