"""Names that are made of the catalogue's: taken where every word is known, and said; else a hint."""

from __future__ import annotations

import pytest

from memcalc.errors import InputError
from memcalc.models import catalogue, hub
from memcalc.models.derived import derived, nearest
from memcalc.models.read import read_model

TAKEN = {
    "Qwen3-32B-autoround-4bit-gptq": ("qwen3-32b", "gptq 4-bit"),
    "Qwen/Qwen3-32B-AWQ": ("qwen3-32b", "awq 4-bit"),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8": ("qwen2.5-7b", "gptq 8-bit"),
    "TheBloke/Mistral-7B-Instruct-v0.2-GPTQ": ("mistral-7b-v0.2", "gptq 4-bit"),
    "org/gemma-3-27b-it-GPTQ-4b-128g": ("gemma-3-27b", "gptq 4-bit"),
    "unsloth/Llama-3.3-70B-Instruct-unsloth-bnb-4bit": ("llama-3.3-70b", "nf4 with double quantisation"),
    "org/Meta-Llama-3.1-70B-Instruct-quantized.w4a16": ("llama-3.1-70b", "int4, packed"),
    "org/Qwen2.5-7B-Instruct-quantized.w8a8": ("qwen2.5-7b", "int8 with a scale for each channel"),
    "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8": ("qwen3-30b-a3b", "fp8 with a scale for each 128 × 128"),
    "nvidia/Llama-3.3-70B-Instruct-FP4": ("llama-3.3-70b", "nvfp4"),
    "org/Qwen3-32B-MXFP4": ("qwen3-32b", "mxfp4"),
    "org/Qwen3-32B-INT4-W4A16": ("qwen3-32b", "int4, packed"),
    "unsloth/gpt-oss-20b-BF16": ("gpt-oss-20b", None),
    "org/DeepSeek-R1-AWQ": ("deepseek-r1", "awq 4-bit"),
    "somebody/llama-7b-hf": ("llama-7b", None),
    "/data/models/Qwen2.5-72B-Instruct": ("qwen2.5-72b", None),
    "/models--Qwen--Qwen1.5-7B-Chat": ("qwen1.5-7b", None),
    "../hub/LLM-Research/Meta-Llama-3-8B-Instruct/": ("llama-3-8b", None),
    "/x/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/abc123": ("qwen2.5-7b", None),
    "/x/hub/Qwen/Qwen2___5-7B-Instruct": ("qwen2.5-7b", None),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_name_that_is_explained_is_taken_and_that_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "config_file", lambda repo_id: pytest.fail("the Hub was asked"))
    entry, stored = TAKEN[name]
    model = read_model(name)
    assert (model.num_params, model.quantization and model.quantization.name) == (read_model(entry).num_params, stored)
    assert model.name == name
    assert model.assumed[0].startswith(f"model {name}: taken by its name for {entry}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Qwen3-32B-4bit", "did you mean qwen3-32b with --quantization gptq, awq, nf4, …?"),
        ("qwen3-32b-gptq-turbo", "did you mean qwen3-32b --quantization gptq?"),
        ("Qwen3-32B-awq-gptq", "did you mean qwen3-32b --quantization gptq?"),
        ("Qwen3-32B-awq-int8", "did you mean qwen3-32b --quantization awq?"),
        ("llama-3-8b-64k", "did you mean llama-3-8b?"),
        ("llama-3-8b-bnb", "did you mean llama-3-8b?"),
        ("something/else", ""),
    ],
)
def test_a_name_that_is_not_gets_a_hint(name: str, hint: str) -> None:
    assert derived(name) is None
    assert nearest(name) == hint


def test_the_hint_stands_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(repo_id: str) -> None:
        raise InputError("cannot be reached", where=repo_id)

    monkeypatch.setattr(hub, "config_file", unreachable)
    for name in ("Qwen3-32B-4bit", "org/Qwen3-32B-4bit"):
        with pytest.raises(InputError, match="did you mean qwen3-32b with --quantization"):
            read_model(name)


def test_what_the_cache_holds_goes_before_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "is_cached", lambda repo_id: True)
    path = catalogue.path_of("qwen3-8b")
    monkeypatch.setattr(hub, "config_file", lambda repo_id: path)
    assert read_model("org/Qwen3-32B-AWQ").num_params == read_model("qwen3-8b").num_params
