"""A model is read from whatever names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError, MemcalcError, ModelError, UnknownNameError
from memcalc.models import catalogue, hub
from memcalc.models.read import read_config, read_model

TINY = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_hidden_layers": 6,
    "vocab_size": 8000,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
TINY_PARAMS = 2 * 8000 * 512 + 6 * (4 * 512 * 512 + 3 * 512 * 1408 + 2 * 512) + 512


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)


def write(path: Path, data: Any) -> Path:
    """A JSON file, its folder made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def refusal(name: str, kind: type[MemcalcError] = InputError) -> str:
    """What is said of a name that leads nowhere; always one line."""
    with pytest.raises(kind) as caught:
        read_model(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_name_of_the_catalogue() -> None:
    spec = read_model("llama-7b")
    assert (spec.name, spec.num_params, spec.assumed) == ("llama-7b", 6_738_415_616, ())


@pytest.mark.parametrize("name", ["tiny/config.json", "./tiny/config.json", "tiny", "./tiny", "tiny/", "other.json"])
def test_a_path_to_a_file_or_its_folder(tmp_path: Path, name: str) -> None:
    write(tmp_path / "tiny" / "config.json", TINY)
    write(tmp_path / "other.json", TINY)
    spec = read_model(name)
    assert (spec.name, spec.num_params, spec.assumed) == (name, TINY_PARAMS, ())


def test_an_absolute_path_and_one_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "tiny" / "config.json", TINY)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_model(str(tmp_path / "tiny")).num_params == read_model("~/tiny").num_params == TINY_PARAMS


def test_a_folder_that_bears_a_name_of_the_catalogue_is_reached_by_its_path(tmp_path: Path) -> None:
    write(tmp_path / "llama-7b" / "config.json", TINY)
    assert read_model("llama-7b").num_params == 6_738_415_616
    assert read_model("./llama-7b").num_params == TINY_PARAMS


def test_a_hub_id_of_the_catalogue_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "config_file", lambda repo_id: pytest.fail("the Hub was asked"))
    spec = read_model("meta-llama/Llama-2-13b-hf")
    assert (spec.name, spec.num_params) == ("meta-llama/Llama-2-13b-hf", 13_015_864_320)


def test_any_other_hub_id_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "cache" / "config.json", TINY)
    asked: list[str] = []
    monkeypatch.setattr(hub, "config_file", lambda repo_id: asked.append(repo_id) or path)
    assert read_model("somebody/tiny-llama").num_params == TINY_PARAMS
    assert asked == ["somebody/tiny-llama"]


def test_a_folder_goes_before_a_hub_id_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "config_file", lambda repo_id: pytest.fail("the Hub was asked"))
    write(tmp_path / "somebody" / "tiny-llama" / "config.json", TINY)
    assert read_model("somebody/tiny-llama").num_params == TINY_PARAMS


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/config.json", "nowhere.json", "a/b/c", "~/nowhere", "nowhere/"])
def test_a_path_that_leads_nowhere_is_not_looked_for_on_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "config_file", lambda repo_id: pytest.fail("the Hub was asked"))
    assert refusal(name).endswith("no such file")


def test_a_name_that_nothing_answers_to_names_the_nearest() -> None:
    assert "did you mean llama-3.1-8b" in refusal("llama-3.1-9b", UnknownNameError)
    assert "no model given" in refusal("  ")
    for strange in ("a\0b", "x" * 5000, "llama 7b!?"):
        refusal(strange)


def test_a_folder_without_config_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "the folder has no config.json" in refusal("./empty")


def test_an_adapter_leads_to_its_base_model(tmp_path: Path) -> None:
    write(tmp_path / "adapter" / "adapter_config.json", {"base_model_name_or_path": "meta-llama/Llama-2-7b-hf"})
    assert "give its base model, meta-llama/Llama-2-7b-hf" in refusal("./adapter")


def test_a_folder_called_config_json_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model" / "config.json").mkdir(parents=True)
    assert "is a folder" in refusal("./model")


def test_an_unknown_model_type_names_the_nearest_and_the_way_out(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {**TINY, "model_type": "lama"})
    said = refusal("./config.json", UnknownNameError)
    assert said.startswith("./config.json: unknown model_type 'lama'; did you mean llama")
    assert "memcalc trace" in said


def test_a_missing_model_type_follows_from_the_architectures(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {**{k: v for k, v in TINY.items() if k != "model_type"}, "architectures": ["LlamaForCausalLM"]})
    spec = read_model("./config.json")
    assert (spec.model_type, spec.num_params) == ("llama", TINY_PARAMS)
    assert spec.assumed == ("model_type llama: not in config.json, from its architectures",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "has neither model_type nor architectures"),
        ({"model_type": 3}, "model_type is 3"),
        ({"model_type": ""}, "model_type is ''"),
        ({"architectures": ["SomethingElse"]}, "architectures SomethingElse does not name one"),
        ({"architectures": "LlamaForCausalLM"}, "has neither model_type nor architectures"),
        ({"architectures": ["LlamaForCausalLM", "MistralForCausalLM"]}, "does not name one"),
    ],
)
def test_a_file_that_says_no_type_is_told_what_to_add(tmp_path: Path, data: dict[str, Any], said: str) -> None:
    write(tmp_path / "config.json", data)
    assert said in refusal("./config.json", ModelError)


def test_a_lossy_copy_is_refused_for_the_key_that_it_lost(tmp_path: Path) -> None:
    """Llama 2 70B without its KV heads would be 10 GB heavier; nothing is filled in."""
    copy = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "vocab_size": 32000,
    }
    write(tmp_path / "config.json", copy)
    assert refusal("./config.json", ModelError).startswith("./config.json: leaves out num_key_value_heads;")


def test_the_config_behind_a_name_says_where_it_stands(tmp_path: Path) -> None:
    write(tmp_path / "tiny" / "config.json", TINY)
    assert read_config("llama-7b").where == "configs/models/llama-7b.json"
    assert read_config("Llama-2-7b-hf").where == "configs/models/llama-2-7b.json"
    assert read_config("./tiny").where == "./tiny/config.json"
    assert catalogue.path_of("tiny") is None
