"""What several sources mean together: dtypes, engines, cards, micro-batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import finished
from memcalc.importers.facts import ACCELERATE, FLAG, TRAINER, Facts
from memcalc.importers.format import recognised
from memcalc.importers.settle import settle
from memcalc.importers.source import parse_source


def settled(**given: Any) -> Facts:
    """Facts, with ``__`` for dots and a leading ``x_`` for what is no key of a run."""
    facts = Facts()
    facts.rank = TRAINER
    for name, value in given.items():
        facts.put(f"~{name[2:]}" if name.startswith("x_") else name.replace("__", "."), value, "here")
    settle(facts)
    return facts


@pytest.mark.parametrize(
    ("given", "dtype", "autocast"),
    [
        ({"x_mixed_precision": "bf16", "x_load_dtype": "float32"}, "float32", "bfloat16"),
        ({"x_mixed_precision": "bf16", "x_load_dtype": "bfloat16"}, "bfloat16", None),
        ({"x_mixed_precision": "no", "x_load_dtype": "float32"}, "float32", None),
        ({"x_mixed_precision": "bf16", "x_load_dtype": "bfloat16", "x_engine": "fsdp2"}, "float32", "bfloat16"),
        ({"x_mixed_precision": "no", "x_load_dtype": "bfloat16", "x_engine": "fsdp2"}, "bfloat16", None),
        ({"x_mixed_precision": "bf16", "x_load_dtype": "bfloat16", "x_engine": "fsdp1", "x_lora": True}, "bfloat16", "bfloat16"),
        ({"x_mixed_precision": "bf16", "x_load_dtype": "float32", "x_engine": "deepspeed"}, "bfloat16", None),
        ({"x_mixed_precision": "bf16", "x_load_dtype": "bfloat16", "x_upcast": True}, "float32", "bfloat16"),
        ({"x_mixed_precision": "bf16", "x_load_dtype": "bfloat16", "x_upcast": True, "x_lora": True}, "bfloat16", "bfloat16"),
    ],
)
def test_weights_are_held_as_the_framework_holds_them(given: dict[str, Any], dtype: str, autocast: str | None) -> None:
    facts = settled(**given)
    assert (facts.get("dtype"), facts.get("autocast")) == (dtype, autocast)


def test_nothing_is_said_of_dtypes_where_nobody_speaks_of_them() -> None:
    assert "dtype" not in settled(x_engine="fsdp2").found


def test_how_checkpoints_and_packed_values_are_is_said_where_there_are_any() -> None:
    """Without them the keys would be refused."""
    given = {"x_reentrant": True, "x_quant_storage": "bfloat16", "x_lora": True}
    with_both = settled(recompute="full", x_bits=4, **given)
    assert (with_both.get("use_reentrant"), with_both.get("bnb_4bit_quant_storage")) == (True, "bfloat16")
    without = settled(recompute="none", **given)
    assert (without.get("use_reentrant"), without.get("bnb_4bit_quant_storage")) == (None, None)


def test_a_global_batch_is_spread_over_ranks_and_micro_batches() -> None:
    assert settled(x_global_batch=256, micro_batch=2, x_gpus_per_node=8, x_nodes=2, sharding__tp=4).get("grad_accum") == 32
    with pytest.raises(InputError, match="a global batch of 250 is no multiple"):
        settled(x_global_batch=250, micro_batch=4, x_world=8)


def test_under_accelerate_gradients_wait_for_the_last_micro_batch() -> None:
    assert settled(x_engine="fsdp2", x_no_sync=True, grad_accum=4).get("sharding.sync_each_batch") is False
    assert settled(x_engine="fsdp2", x_no_sync=True, grad_accum=1).get("sharding.sync_each_batch") is None


def test_knobs_of_another_engine_go() -> None:
    facts = settled(x_engine="fsdp2", sharding__fsdp_sharding_strategy="NO_SHARD", sharding__reshard_after_forward=False)
    assert "sharding.fsdp_sharding_strategy" not in facts.found
    assert facts.get("sharding.reshard_after_forward") is False


def test_adapters_that_are_not_switched_on_go() -> None:
    assert "lora.r" not in settled(lora__r=8).found
    assert settled(x_lora=True, lora__target_modules="q_proj, v_proj").get("lora.target_modules") == ("q_proj", "v_proj")


def test_the_higher_rank_wins_whatever_the_order() -> None:
    for order in ((ACCELERATE, TRAINER), (TRAINER, ACCELERATE)):
        facts = Facts()
        for rank in order:
            facts.rank = rank
            facts.default("micro_batch", 0, "some framework")
            facts.put("micro_batch", rank, f"rank {rank}")
        assert facts.get("micro_batch") == TRAINER


def test_a_fused_loss_over_a_head_that_is_cut_is_counted_whole_and_said() -> None:
    facts = settled(loss="fused_linear", sharding__tp=2)
    assert facts.get("loss") == "cross_entropy"
    assert "whole logits are" in facts.unused[0]
    assert settled(loss="fused_linear").get("loss") == "fused_linear"


def test_a_global_batch_is_spread_over_the_cards_that_flags_give() -> None:
    text = "policy: {model_name: m, train_global_batch_size: 64, train_micro_batch_size: 2}\ngrpo: {}\ncluster: {gpus_per_node: 8, num_nodes: 1}\n"
    source = parse_source(text, name="t.yaml")
    facts = Facts()
    facts.rank = FLAG
    facts.put("hardware.gpus", 4, "flag")
    assert finished(facts, [(source, recognised(source))]).layer.data["grad_accum"] == 8


def adapter(**keys: Any) -> Any:
    """What an adapter_config.json with these keys says of a run."""
    source = parse_source(json.dumps({"base_model_name_or_path": "meta-llama/Llama-3.1-8B", **keys}), name="adapter_config.json")
    return finished(Facts(), [(source, recognised(source))]).layer.data


def test_virtual_tokens_of_an_adapter() -> None:
    """PEFT writes the width of a network even where there is none."""
    prefix = adapter(peft_type="PREFIX_TUNING", num_virtual_tokens=30, prefix_projection=False, encoder_hidden_size=4096, token_dim=1024)
    assert prefix["prompt"] == {"type": "prefix_tuning", "num_virtual_tokens": 30}
    made = adapter(peft_type="P_TUNING", num_virtual_tokens=30, encoder_hidden_size=128, encoder_reparameterization_type="MLP")
    assert made["prompt"] == {"type": "p_tuning", "num_virtual_tokens": 30, "encoder_hidden_size": 128}


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"peft_type": "IA3", "target_modules": ["k_proj"]}, "peft_type IA3"),
        ({"peft_type": "P_TUNING", "encoder_reparameterization_type": "LSTM"}, "encoder_reparameterization_type LSTM"),
    ],
)
def test_adapters_that_are_not_counted_are_refused_by_name(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        adapter(**keys)


OFFLOADED = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}


@pytest.mark.parametrize(
    ("given", "key", "value", "said"),
    [
        ({"loss": "fused_linear", "task": "grpo"}, "loss", "cross_entropy", "of task grpo"),
        ({"loss": "chunked", "task": "grpo"}, "loss", "chunked", ""),
        ({"loss": "chunked", "task": "orpo"}, "loss", "cross_entropy", "of task orpo"),
        ({"loss": "fused_linear", "code": "megatron"}, "loss", "cross_entropy", "beside megatron's own head"),
        ({"loss": "cut_cross_entropy", "x_lora": True, "lora__target_modules": ["lm_head"]}, "loss", "cross_entropy", "a head that is adapted"),
        ({"loss": "chunked_output", "sharding__tp": 2}, "loss", "chunked_output", ""),
        ({"x_lora": True, "lora__target_modules": ["all-linear", "router"]}, "lora.target_modules", "all-linear", "router beside all-linear"),
        ({"x_lora": True, "code": "megatron", "lora__modules_to_save": ("output_layer",)}, "lora.modules_to_save", ("lm_head",), ""),
        ({"x_deepspeed": OFFLOADED, "optimizer": "adamw_bnb_8bit"}, "optimizer", "adamw_torch", ""),
        ({"x_deepspeed": OFFLOADED, "optimizer": "adamw_bnb_8bit", "x_auto_by": "deepspeed"}, "optimizer", "adamw_bnb_8bit", ""),
        ({"rollout__engine": "transformers", "rollout__sleep_level": 1}, "rollout.sleep_level", None, ""),
    ],
)
def test_what_cannot_be_counted_as_it_stands_is_counted_as_more_and_said(given: dict[str, Any], key: str, value: Any, said: str) -> None:
    facts = settled(**given)
    assert facts.get(key) == value
    assert (said in " ".join(facts.unused)) if said else not facts.unused
