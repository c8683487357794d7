"""Which weights axolotl packs: 4 bits for qlora, 8 for lora, and none in training without one of the two."""

from __future__ import annotations

import pytest

from memcalc.importers import import_text

BASE = "base_model: mistralai/Mixtral-8x7B-v0.1\nmicro_batch_size: 1\n"


@pytest.mark.parametrize(
    ("keys", "quantization", "dtype", "said"),
    [
        ("adapter: qlora\nload_in_4bit: true", "nf4-dq", "bfloat16", ""),
        ("adapter: lora\nload_in_8bit: true", "int8", "bfloat16", ""),
        ("load_in_4bit: true", "nf4-dq", "bfloat16", "adapter qlora: axolotl 0.13 trains no weights in 4 bits without one, and refuses the file (axolotl"),
        ("load_in_8bit: true", "int8", "bfloat16", "adapter lora: axolotl 0.13 trains no weights in 8 bits without one"),
        ("adapter: lora\nload_in_4bit: true", None, "float32", "no quantization: axolotl 0.13 packs weights in 4 bits for adapter qlora alone"),
    ],
)
def test_bits_go_with_an_adapter(keys: str, quantization: str | None, dtype: str, said: str) -> None:
    found = import_text(BASE + keys, name="axolotl.yaml")
    assert (found.layer.data.get("quantization"), found.layer.data["dtype"]) == (quantization, dtype)
    assert found.layer.data["lora"]["r"] == 8
    assert any(line.startswith(said) for line in found.assumed)


def test_what_is_not_quantised_is_held_in_bf16_beside_adapters() -> None:
    """Norms and tables are cast back after peft's cast to fp32."""
    assert import_text(BASE + "adapter: qlora\nload_in_4bit: true", name="axolotl.yaml").layer.data["kbit_upcast"] is False


def test_bf16_auto_stands_beside_fp16_false() -> None:
    found = import_text(BASE + "bf16: auto\nfp16: false\nfsdp_version: 2", name="axolotl.yaml").layer.data
    assert (found["dtype"], found["autocast"]) == ("float32", "bfloat16")
    assert "autocast" not in import_text(BASE + "bf16: false\nfp16: false", name="axolotl.yaml").layer.data


def test_packed_values_are_filed_so_that_fsdp_spreads_them() -> None:
    """axolotl 1522: Llama 2 70B over two cards."""
    fsdp = "adapter: qlora\nload_in_4bit: true\nfsdp: [full_shard, auto_wrap]\nfsdp_config: {fsdp_offload_params: true}\n"
    assert import_text(BASE + fsdp, name="axolotl.yaml").layer.data["bnb_4bit_quant_storage"] == "bfloat16"
    other = "bnb_config_kwargs: {bnb_4bit_quant_storage: uint8, bnb_4bit_use_double_quant: false}\n"
    found = import_text(BASE + fsdp + other, name="axolotl.yaml").layer.data
    assert (found["bnb_4bit_quant_storage"], found["quantization"]) == ("uint8", "nf4")


@pytest.mark.parametrize(
    ("keys", "kernels"),
    [
        ("adapter: lora\nlora_dropout: 0.0", ("mlp", "qkv", "o")),
        ("adapter: lora\nlora_dropout: 0.05", None),
        ("adapter: lora\nlora_dropout: 0.0\nload_in_8bit: true", None),
        ("adapter: lora\nlora_dropout: 0.0\nrl: dpo", None),
        ("adapter: lora\nlora_dropout: 0.0\nfsdp: [full_shard, auto_wrap]", None),
        ("adapter: lora\nlora_dropout: 0.05\nlora_qkv_kernel: true", ("qkv",)),
        ("adapter: lora\nlora_dropout: 0.0\nlora_mlp_kernel: false", None),
        ("lora_mlp_kernel: true", None),
    ],
)
def test_kernels_for_adapters_are_on_where_nothing_stands_against_them(keys: str, kernels: tuple[str, ...] | None) -> None:
    assert import_text(BASE + keys, name="axolotl.yaml").layer.data.get("lora", {}).get("kernels") == kernels


@pytest.mark.parametrize(("key", "loss"), [("", "cut_cross_entropy"), ("cut_cross_entropy: true", "cut_cross_entropy"), ("cut_cross_entropy: false", None)])
def test_cut_cross_entropy_comes_with_its_plugin_unless_it_is_off(key: str, loss: str | None) -> None:
    plugin = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]"
    assert {import_text(f"{BASE}{a}\n{b}", name="axolotl.yaml").layer.data.get("loss") for a, b in ((plugin, key), (key, plugin))} == {loss}
