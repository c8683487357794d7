"""Adapters around fused products."""

from __future__ import annotations

import pytest

from memcalc.models.fused_lora import adapt_fused
from memcalc.models.lora import is_adapter
from memcalc.models.read import read_model
from memcalc.specs.run import LoraSpec

R = 8


def trained(name: str, targets: str | tuple[str, ...]) -> int:
    """Parameters of the adapters."""
    model = adapt_fused(read_model(name), LoraSpec(r=R, target_modules=targets))
    return sum(weight.num_params * repeat for path, weight, repeat in model.weights() if is_adapter(path))


def test_an_adapter_stands_around_each_fused_product() -> None:
    """Qwen2.5 7B: 28 layers, hidden 3584, 28 heads and 4 KV heads of 128, intermediate 18944."""
    hidden, qkv, wide = 3584, (28 + 2 * 4) * 128, 18944
    sizes = {"linear_qkv": hidden + qkv, "linear_proj": 2 * hidden, "linear_fc1": hidden + 2 * wide, "linear_fc2": wide + hidden}
    for name, size in sizes.items():
        assert trained("qwen2.5-7b", (name,)) == 28 * R * size
    assert trained("qwen2.5-7b", "all-linear") == 28 * R * sum(sizes.values())


@pytest.mark.parametrize("targets", [("q_proj",), ("q_proj", "v_proj"), ("linear_qkv",)])
def test_layers_that_stand_in_one_product_share_its_adapter(targets: tuple[str, ...]) -> None:
    assert trained("qwen2.5-7b", targets) == trained("qwen2.5-7b", ("linear_qkv",))


def test_each_routed_expert_has_adapters_of_its_own() -> None:
    """Qwen3 30B A3B: 48 layers of 128 experts, hidden 2048, intermediate 768 of each."""
    first, second = 2048 + 2 * 768, 768 + 2048
    assert trained("qwen3-30b-a3b", ("linear_fc1",)) == 48 * 128 * R * first
    assert trained("qwen3-30b-a3b", ("linear_fc2",)) == 48 * 128 * R * second
