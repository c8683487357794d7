"""Readings are checked; what a file leaves out is taken from transformers' class, or refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from memcalc.errors import ModelError
from memcalc.models.config import Config

LLAMA = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_hidden_layers": 6, "vocab_size": 8000}


def config(**data: Any) -> Config:
    """A file that holds these keys."""
    return Config(data, where="config.json")


def refusal(reading: Callable[[], object]) -> str:
    """What is said of a reading that fails."""
    with pytest.raises(ModelError) as caught:
        reading()
    assert caught.value.where == "config.json"
    return caught.value.message


@pytest.mark.parametrize("value", [True, 0, -1, 2**40 + 1, 1.5, 4096.0, "4096", [4096], {}, float("inf"), float("nan")])
def test_a_size_is_an_integer_from_1_to_2_to_the_40(value: Any) -> None:
    assert refusal(lambda: config(hidden_size=value).int("hidden_size")).startswith("hidden_size is ")


def test_a_size_may_be_zero_where_that_means_something() -> None:
    assert config(first_k_dense_replace=0).int("first_k_dense_replace", minimum=0) == 0


def test_the_first_of_several_names_that_the_file_holds_counts() -> None:
    assert config(n_embd=768).int("hidden_size", "n_embd") == 768


def test_other_kinds_of_value_are_checked_too() -> None:
    assert config(tie_word_embeddings=False).bool("tie_word_embeddings") is False
    assert config(hidden_act="silu").str("hidden_act") == "silu"
    assert config(partial_rotary_factor=1).float("partial_rotary_factor") == 1.0
    assert config(layer_types=["a", "b"]).strs("layer_types") == ("a", "b")
    assert config(mlp_only_layers=[0, 3]).ints("mlp_only_layers") == (0, 3)
    assert "true or false" in refusal(lambda: config(tie_word_embeddings="false").bool("tie_word_embeddings"))
    assert "a string" in refusal(lambda: config(hidden_act=3).str("hidden_act"))
    assert "finite" in refusal(lambda: config(logit_scale=float("inf")).float("logit_scale"))
    assert "a list" in refusal(lambda: config(layer_types="full").strs("layer_types"))
    assert "a list of strings" in refusal(lambda: config(layer_types=[1]).strs("layer_types"))
    assert "an integer" in refusal(lambda: config(mlp_only_layers=["0"]).ints("mlp_only_layers"))


def test_null_switches_an_optional_value_off() -> None:
    assert config(sliding_window=None).optional_int("sliding_window") is None
    assert config(sliding_window=4096).optional_int("sliding_window") == 4096
    assert config(attn_logit_softcapping=None).optional_float("attn_logit_softcapping") is None


def test_a_default_of_the_family_needs_no_class() -> None:
    assert config(num_key_value_heads=None).int("num_key_value_heads", default=8) == 8
    assert config().optional_int("sliding_window", default=None) is None


def test_what_is_left_out_is_what_transformers_makes_of_the_file_and_is_written_down() -> None:
    """KV heads and the width of a head follow from this file's own sizes, not from Llama 7B's."""
    read = config(**LLAMA)
    assert (read.int("num_key_value_heads"), read.int("head_dim"), read.bool("attention_bias")) == (8, 64, False)
    assert read.assumptions == ("num_key_value_heads 8, head_dim 64, attention_bias false: not in config.json, from transformers' LlamaConfig",)


def test_a_null_is_resolved_as_transformers_does() -> None:
    assert config(**LLAMA, num_key_value_heads=None).int("num_key_value_heads") == 8


def test_the_class_knows_other_names_of_a_key() -> None:
    """GPT-2's files say n_embd; the class also takes hidden_size. Neither is an assumption."""
    for names in ({"n_embd": 48, "n_head": 4, "n_layer": 2}, {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2}):
        read = config(model_type="gpt2", **names)
        assert (read.int("n_embd"), read.int("hidden_size"), read.int("num_hidden_layers")) == (48, 48, 2)
        assert read.assumptions == ()


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads"])
def test_a_size_that_says_which_model_it_is_has_no_default(key: str) -> None:
    """Otherwise a file that lost it would be counted as Llama 7B."""
    rest = {name: value for name, value in LLAMA.items() if name != key}
    assert refusal(lambda: config(**rest).int(key)).startswith(f"leaves out {key}; the default of LlamaConfig is another model's number")


def test_a_copy_without_model_type_has_no_defaults_at_all() -> None:
    """Llama 2 70B has 8 KV heads; its copy that lost the key must not be counted with 64."""
    copy = Config({"hidden_size": 8192, "num_attention_heads": 64}, where="config.json", model_type="llama")
    assert refusal(lambda: copy.int("num_key_value_heads")).startswith("leaves out num_key_value_heads; a file without model_type is a copy")
    assert copy.int("num_experts", default=1) == 1


def test_a_type_that_transformers_does_not_know_has_no_defaults() -> None:
    assert "no configuration class for 'qwen'" in refusal(lambda: config(model_type="qwen").int("kv_channels"))


def test_a_file_that_transformers_refuses_gives_no_defaults() -> None:
    assert "transformers' LlamaConfig refuses the file" in refusal(lambda: config(**{**LLAMA, "vocab_size": "many"}).int("head_dim"))


def test_a_key_that_no_class_has_is_missing() -> None:
    assert refusal(lambda: config(**LLAMA).int("num_experts")).startswith("leaves out num_experts; transformers' LlamaConfig has no default for it")


def test_a_nested_configuration_takes_the_rest_from_its_own_class() -> None:
    """Files of multimodal models leave out what equals the class's default, sizes among them."""
    data = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}}
    whole = Config(data, where="config.json")
    text = whole.sub("text_config")
    assert (text.model_type, text.int("hidden_size"), text.int("num_attention_heads")) == ("gemma3_text", 2560, 8)
    assert whole.sub("vision_config").int("patch_size") == 16
    assert whole.assumptions == (
        "text_config.num_attention_heads 8: not in config.json, from transformers' Gemma3TextConfig",
        "vision_config.patch_size 16: not in config.json, from transformers' SiglipVisionConfig",
    )


def test_a_nested_configuration_is_an_object() -> None:
    assert refusal(lambda: config(model_type="gemma3", text_config=3).sub("text_config")) == "text_config is 3; an object was expected"
    assert refusal(lambda: config().sub("text_config")).startswith("leaves out text_config")


def test_messages_name_the_place_of_a_nested_key() -> None:
    nested = config(model_type="gemma3", text_config={"hidden_size": -1}).sub("text_config")
    assert refusal(lambda: nested.int("hidden_size")).startswith("text_config.hidden_size is -1")


def test_the_dtype_of_the_checkpoint_is_under_either_name() -> None:
    assert config(torch_dtype="bfloat16").dtype == config(dtype="torch.bfloat16").dtype == "bfloat16"
    assert config().dtype is None


def test_kinds_of_layers_are_one_known_word_for_each() -> None:
    """Words of older files stand for known ones."""
    known = ("full", "window")
    assert config(layer_types=["all", "window"]).kinds("layer_types", known=known, count=2, spelt={"all": "full"}) == known
    for wrong in (["full"], ["full", "all"]):
        said = refusal(partial(config(layer_types=wrong).kinds, "layer_types", known=known, count=2))
        assert said == "layer_types must name full or window for each of the 2 layers"
