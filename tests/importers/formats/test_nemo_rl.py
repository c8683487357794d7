"""NeMo-RL's Megatron workers: recipes over their base, cards that generate, and what of the policy is put away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.specs.read import merged

BASE = """
policy:
  model_name: qwen2.5-1.5b
  train_global_batch_size: 512
  train_micro_batch_size: 4
  logprob_batch_size: 4
  max_total_sequence_length: 2048
  precision: bfloat16
  sequence_packing: {enabled: true, train_mb_tokens: "${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}"}
  dtensor_cfg: {enabled: true, tensor_parallel_size: 1, activation_checkpointing: false}
  megatron_cfg:
    enabled: false
    activation_checkpointing: false
    recompute_granularity: full
    recompute_modules: null
    tensor_model_parallel_size: 1
    pipeline_model_parallel_size: 1
    sequence_parallel: false
    gradient_accumulation_fusion: false
    optimizer: {optimizer: adam, use_distributed_optimizer: true, use_precision_aware_optimizer: true, optimizer_cpu_offload: false,
                optimizer_offload_fraction: 0.0}
    distributed_data_parallel_config: {grad_reduce_in_fp32: false}
  generation: {backend: vllm, colocated: {enabled: true}, vllm_cfg: {gpu_memory_utilization: 0.6, tensor_parallel_size: 1}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
MEGATRON = (
    "dtensor_cfg: {enabled: false}, megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, sequence_parallel: true"
)
GRPO = "grpo: {num_prompts_per_step: 32, num_generations_per_prompt: 16}"


def run_of(tmp_path: Path, policy: str, *, algorithm: str = GRPO) -> dict[str, Any]:
    (tmp_path / "base.yaml").write_text(BASE)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"defaults: base.yaml\n{algorithm}\npolicy: {{{policy}}}\n")
    return merged([import_files([str(recipe)]).layer]).as_dict()


def test_a_recipe_over_its_base_is_megatrons(tmp_path: Path) -> None:
    found = run_of(tmp_path, MEGATRON + "}")
    sharding = found["sharding"]
    assert (found["code"], found["dtype"], found["recompute"], found["seq_len"]) == ("megatron", "bfloat16", "none", 2048)
    assert [sharding[key] for key in ("engine", "tp", "pp", "sp")] == ["megatron", 2, 2, True]
    assert [sharding[key] for key in ("use_precision_aware_optimizer", "grad_reduce_in_bf16", "gradient_accumulation_fusion")] == [True, True, False]
    assert found["grad_accum"] == 512 // 4 // 4
    assert "max_token_len" not in found["rl"]  # as many as a micro-batch has


def test_granularity_counts_where_checkpointing_is_on(tmp_path: Path) -> None:
    assert run_of(tmp_path, MEGATRON + ", activation_checkpointing: true}")["recompute"] == "full"
    some = run_of(tmp_path, MEGATRON + ", activation_checkpointing: true, recompute_granularity: selective, recompute_modules: [mlp]}")
    assert (some["recompute"], some["recompute_modules"]) == ("selective", ("mlp",))


def test_main_parameters_stay_unless_the_optimizer_is_the_precision_aware_one(tmp_path: Path) -> None:
    plain = run_of(tmp_path, MEGATRON + ", optimizer: {use_precision_aware_optimizer: false}}")
    assert plain["roles"]["actor"]["idle"] == {"params": "cpu", "moments": "cpu", "gradients": "cpu"}
    assert "roles" not in run_of(tmp_path, MEGATRON + "}")  # the framework's own: all of it


def test_cards_that_generate_do_not_train_and_nothing_else_is_put_away(tmp_path: Path) -> None:
    found = run_of(tmp_path, MEGATRON + "}, generation: {colocated: {enabled: false, resources: {gpus_per_node: 8, num_nodes: 1}}}")
    assert (found["hardware"]["gpus"], found["rollout"]["cards"]) == (8, "other")
    assert found["roles"]["actor"]["idle"] == {"gradients": "cpu"}


def test_a_reference_of_dpo_is_asked_before_the_step(tmp_path: Path) -> None:
    found = run_of(tmp_path, MEGATRON + "}", algorithm="dpo: {max_num_epochs: 1, reference_policy_kl_penalty: 0.05}")
    assert (found["task"], found["roles"], found["rl"]["framework"]) == ("dpo", {"reference": {"precomputed": True}}, "nemo-rl")


def test_fused_log_probabilities_and_those_of_some_tokens(tmp_path: Path) -> None:
    fused = run_of(tmp_path, MEGATRON + ", use_fused_linear_logprobs: true, fused_linear_logprobs_chunk_size: 128}, logprob_chunk_size: 2048")
    assert (fused["loss"], fused["rl"]["logprob_chunk"]) == ("fused_linear", 128)
    assert run_of(tmp_path, MEGATRON + "}, logprob_chunk_size: 2048")["rl"]["logprob_chunk"] == 2048


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (MEGATRON + "}, generation: {backend: megatron}", "Megatron's own engine generates; memcalc knows vllm and sglang"),
        ("megatron_cfg: {enabled: true}", "enables megatron_cfg and dtensor_cfg; one of them trains"),
    ],
)
def test_what_is_not_known_is_said_with_its_line(tmp_path: Path, policy: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_of(tmp_path, policy)
