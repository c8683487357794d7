"""Adapters as a change of the model's tree: what is wrapped, and with how many parameters."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError, UnknownNameError
from memcalc.models.lora import DEFAULT_TARGETS, adapt, is_adapter
from memcalc.models.read import read_model
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import LoraSpec

HIDDEN, VOCAB, LAYERS = 4096, 32000, 32


def adapted(model: str = "llama-7b", **keys: Any) -> ModelSpec:
    """A model with adapters."""
    return adapt(read_model(model), LoraSpec.model_validate({"r": 8, **keys}))


def num_trained(spec: ModelSpec) -> int:
    """Elements of adapters and of trained copies."""
    return sum(w.num_params * copies for path, w, copies in spec.weights() if is_adapter(path) and not w.frozen)


def test_default_targets_are_pefts() -> None:
    """Queries and values of Llama."""
    assert num_trained(adapted(target_modules="default")) == LAYERS * 2 * 8 * 2 * HIDDEN


def test_a_model_type_without_default_targets_is_an_error() -> None:
    """PEFT asks for them, too."""
    with pytest.raises(UnknownNameError, match="default target modules"):
        adapted("gpt-oss-20b", target_modules="default")
    assert "llama" in DEFAULT_TARGETS


@pytest.mark.parametrize(("pattern", "rank"), [({"q_proj": 32}, 32), ({"self_attn.q_proj": 4}, 4), ({"v_proj": 32}, 8)])
def test_a_rank_may_depend_on_the_path(pattern: dict[str, int], rank: int) -> None:
    """Of the end of a path, or a longer end."""
    assert num_trained(adapted(target_modules=["q_proj"], rank_pattern=pattern)) == LAYERS * rank * 2 * HIDDEN


def test_dora_adds_a_magnitude_for_each_row() -> None:
    """Of each targeted layer."""
    assert num_trained(adapted(target_modules=["q_proj"], use_dora=True)) == LAYERS * (8 * 2 * HIDDEN + HIDDEN)


def test_the_table_may_be_a_target() -> None:
    """By its name; all-linear leaves it alone."""
    assert num_trained(adapted(target_modules=["q_proj", "embed_tokens"])) - num_trained(adapted(target_modules=["q_proj"])) == 8 * (VOCAB + HIDDEN)
    assert all("lora_embedding" not in path for path, _, _ in adapted().weights())


def test_saved_modules_are_whole_copies_beside_the_frozen_ones() -> None:
    """Of the table and the head: trained once, held twice."""
    plain, spec = read_model("llama-7b"), adapted(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    adapters = LAYERS * 8 * 2 * HIDDEN
    assert num_trained(spec) == adapters + 2 * VOCAB * HIDDEN
    assert spec.num_params == plain.num_params + adapters + 2 * VOCAB * HIDDEN


def test_a_saved_head_is_tied_no_more() -> None:
    """The table stays, frozen; the head's copy is trained."""
    spec = adapted("qwen2.5-0.5b", target_modules=["q_proj"], modules_to_save=["lm_head"])
    plain = adapted("qwen2.5-0.5b", target_modules=["q_proj"])
    assert num_trained(spec) - num_trained(plain) == 151936 * 896


def test_what_cannot_be_saved_is_an_error() -> None:
    """It names what can."""
    with pytest.raises(UnknownNameError, match="lm_head"):
        adapted(modules_to_save=["lm_haed"])


def test_stacked_experts_get_factors_for_all_of_them() -> None:
    """r * 8 experts of Mixtral: both factors of both weights, beside those of the linear layers."""
    plain, spec = (adapted("mixtral-8x7b", target_modules=["q_proj"], **keys) for keys in ({}, {"target_parameters": ["experts.gate_up_proj", "down_proj"]}))
    assert num_trained(spec) - num_trained(plain) == 32 * 8 * 8 * (4096 + 2 * 14336 + 14336 + 4096)


@pytest.mark.parametrize(
    ("keys", "message"), [({"target_parameters": ["gate_proj"]}, "gate_up_proj"), ({"dropout": 0.1, "target_parameters": ["down_proj"]}, "dropout")]
)
def test_what_cannot_be_wrapped_is_an_error(keys: dict[str, Any], message: str) -> None:
    """A name that is no stacked weight; dropout."""
    with pytest.raises(InputError, match=message):
        adapted("mixtral-8x7b", target_modules=["q_proj"], **keys)


@pytest.mark.parametrize(
    ("keys", "layers"),
    [
        ({"target_modules": r"model\.layers\.(1[0-9]|20)\.self_attn\.q_proj"}, 11),
        ({"target_modules": [f"layers.{i}.self_attn.q_proj" for i in range(3)]}, 3),
        ({"target_modules": ["q_proj"], "layers_to_transform": ["0", "31"]}, 2),
        ({"target_modules": ["q_proj"], "exclude_modules": r".*\.layers\.\d\..*"}, 22),
        ({"target_modules": ".*q_proj"}, 32),
    ],
)
def test_some_layers_alone_may_be_targeted(keys: dict[str, Any], layers: int) -> None:
    """By their numbers, wherever PEFT takes them; the other layers stay whole."""
    found = adapted(**keys)
    assert num_trained(found) == layers * 8 * 2 * HIDDEN
    assert sum(block.repeat for block in found.blocks if block.role == "layer") == LAYERS


def test_a_pattern_over_whole_names_tells_text_from_images() -> None:
    """Axolotl's examples for models that see images."""
    text = adapted("gemma-3-4b", target_modules=r"model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj")
    assert not any("lora" in path for path, _, _ in text.weights() if "vision" in path)
    assert sum(copies for path, _, copies in text.weights() if path.endswith("q_proj/lora_A/default/weight")) == 34


@pytest.mark.parametrize(
    "targets", ["all-linear", ["q_proj", "k_proj", "v_proj", "o_proj", "gate", "w1", "w2", "w3"], r".*\.(q_proj|k_proj|v_proj|o_proj|gate|w1|w2|w3)"]
)
def test_layers_that_became_parameters_are_adapted_as_such(targets: Any) -> None:
    """Mixtral's experts and routers: both projections in one tensor have twice the rank."""
    spec = adapt(read_model("mixtral-8x7b"), LoraSpec.model_validate({"r": 8, "target_modules": targets}), converts=True)
    attention = 2 * (4096 + 4096) + 2 * (4096 + 1024)
    experts = 8 * (2 * (4096 + 2 * 14336) + 14336 + 4096)
    assert num_trained(spec) == 32 * 8 * (attention + experts + 4096 + 8)


def test_half_of_what_became_one_parameter_is_an_error() -> None:
    """As PEFT says."""
    with pytest.raises(InputError, match="w1 stands in gate_up_proj with w3"):
        adapt(read_model("mixtral-8x7b"), LoraSpec.model_validate({"target_modules": ["q_proj", "w1"]}), converts=True)


def test_a_tied_head_may_have_an_adapter() -> None:
    """Its table is the embedding's, its factors are its own."""
    spec, plain = (adapted("qwen2.5-0.5b", target_modules=["q_proj", *more]) for more in (["lm_head"], []))
    assert num_trained(spec) - num_trained(plain) == 8 * (896 + 151936)
