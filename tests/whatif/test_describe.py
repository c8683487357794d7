"""What a model is made of."""

from __future__ import annotations

import pytest

from memcalc.models.read import read_model
from memcalc.whatif.describe import Part, describe, layer_kinds, parameter_tree

MODELS = ("llama-7b", "mistral-7b", "qwen2.5-0.5b", "qwen3-30b-a3b", "deepseek-v3")


def leaves(part: Part) -> int:
    """Elements of the weights at the ends of the tree."""
    return sum(map(leaves, part.parts)) if part.parts else part.num_params


@pytest.mark.parametrize("name", MODELS)
def test_every_level_of_the_tree_sums_to_the_count(name: str) -> None:
    spec = read_model(name)
    tree = parameter_tree(spec)
    assert tree.num_params == leaves(tree) == spec.num_params

    def check(part: Part) -> None:
        if part.parts:
            assert sum(below.num_params for below in part.parts) == part.num_params, part.path
        for below in part.parts:
            check(below)

    check(tree)


@pytest.mark.parametrize("name", MODELS)
def test_kinds_of_layers_are_all_layers(name: str) -> None:
    spec = read_model(name)
    kinds = layer_kinds(spec)
    assert sum(kind.num_layers for kind in kinds) == spec.num_layers
    assert sum(kind.num_layers * kind.num_params for kind in kinds) == sum(block.num_params for block in spec.blocks if block.role == "layer")


def test_layers_are_told_apart_by_their_make() -> None:
    dense, sparse = layer_kinds(read_model("deepseek-v3"))
    assert (dense.num_layers, dense.places, sparse.num_layers, sparse.places) == (3, "0-2", 58, "3-60")
    assert "256 experts, 8 per token" in sparse.parts


def test_heads_that_are_axes_are_told_as_numbers() -> None:
    """Of Mamba-2's mixer."""
    assert any("64 heads of 64" in kind.parts for kind in layer_kinds(read_model("nemotron-3-nano")) if "Mamba2" in kind.parts)
    assert not any("Axis" in kind.parts for kind in layer_kinds(read_model("nemotron-3-nano")))


def test_states_of_recurrent_layers_are_a_matter_of_sequences() -> None:
    """Falcon-Mamba: in each of 64 layers, for each of 8192 channels, a state of 16 numbers in fp32 and the last four tokens in bf16."""
    found = describe("falcon-mamba-7b")
    assert found.cache_bytes_per_token is None
    assert found.cache_bytes_per_sequence == 64 * 8192 * (16 * 4 + 4 * 2)


@pytest.mark.parametrize(("name", "per_token"), [("llama-3.1-8b", 131072), ("llama-3.1-70b", 327680), ("deepseek-v3", 70272), ("llama-7b", 524288)])
def test_bytes_of_cache_per_token_as_published(name: str, per_token: int) -> None:
    assert describe(name).cache_bytes_per_token == per_token
