"""ms-swift's commands: what is left to it, its optimizers, sequences over ranks, and learning with a server on the same cards."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.importers import Imported, import_files, import_text
from memcalc.specs.read import merged

SFT = "NPROC_PER_NODE=8 swift sft --model qwen2.5-7b --max_length 4096 "
GRPO = "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model qwen2.5-7b --tuner_type full --max_length 2048 --max_completion_length 1024 "
COLOCATED = "--use_vllm true --vllm_mode colocate --vllm_tensor_parallel_size 4 --sleep_level 1 --offload_model true --offload_optimizer true "


def read(command: str) -> Imported:
    return import_files([], command=shlex.split(command))


def run_of(command: str) -> dict[str, Any]:
    return merged([read(command).layer]).as_dict()


def test_gradients_are_accumulated_up_to_sixteen_sequences_and_adapters_drop_out() -> None:
    found = run_of(SFT)
    assert (found["grad_accum"], found["lora"]["dropout"], found["recompute"]) == (2, 0.05, "full")


@pytest.mark.parametrize(
    ("words", "optimizer"),
    [("--optimizer muonclip", "muon"), ("--use_galore true", "galore_adamw"), ("--optimizer lorap --optim adamw_bnb_8bit", "adamw_bnb_8bit")],
)
def test_optimizers_of_its_own(words: str, optimizer: str) -> None:
    assert run_of(SFT + "--tuner_type full " + words)["optimizer"] == optimizer


def test_sequences_are_split_over_ranks_that_share_all_states() -> None:
    found = run_of(SFT + "--sequence_parallel_size 4 --deepspeed zero3 --packing true --packing_length 8192")
    assert (found["sharding"]["cp"], found["sharding"]["engine"], found["seq_len"]) == (4, "deepspeed", 8192)


def test_a_server_on_the_same_cards_has_its_share_and_what_it_makes_room_for_is_away() -> None:
    found = run_of(GRPO + COLOCATED + "--vllm_max_model_len 2560 --steps_per_generation 4 --num_generations 16 --log_entropy true")
    rollout = found["rollout"]
    assert (rollout["engine"], rollout["gpu_memory_utilization"], rollout["tensor_parallel_size"], rollout["sleep_level"]) == ("vllm", 0.9, 4, 1)
    assert (rollout["prompt_length"], rollout["response_length"]) == (1536, 1024)  # the server has no longer sequences
    assert (rollout["prompts"], rollout["num_generations"]) == (1, 4)  # of 16 answers to a prompt
    assert found["roles"]["actor"]["idle"] == {"params": "cpu", "optimizer": "cpu"}
    assert (found["rl"]["kl"], found["rl"]["entropy"], found["grad_accum"]) == ("loss", "chunked", 1)


def test_a_server_elsewhere_makes_no_room() -> None:
    found = run_of(GRPO + COLOCATED.replace("colocate", "server") + "--beta 0")
    assert (found["rollout"]["cards"], found["rl"]["kl"]) == ("other", "none")
    assert found.get("roles") is None


def test_a_teacher_is_spread_by_a_configuration_of_its_own() -> None:
    found = run_of("swift rlhf --rlhf_type gkd --model qwen2.5-7b --teacher_model qwen2.5-14b --teacher_deepspeed zero3 --deepspeed zero2")
    assert (found["task"], found["roles"]["teacher"]["sharding"]) == ("distill", {"engine": "deepspeed", "zero": 3})


@pytest.mark.parametrize("words", ["", "--teacher_model qwen2.5-7b"])
def test_a_student_with_adapters_off_is_its_own_teacher(words: str) -> None:
    found = run_of(f"swift rlhf --rlhf_type gkd --model qwen2.5-7b {words}")
    assert found["roles"]["teacher"] == {"model": "qwen2.5-7b", "shares": "actor"}


@pytest.mark.parametrize(("words", "task"), [("cpo", "orpo"), ("simpo", "orpo"), ("simpo --cpo_alpha 0", "simpo"), ("rm", "reward")])
def test_preferences_under_names_of_its_own(words: str, task: str) -> None:
    assert run_of(f"swift rlhf --model qwen2.5-7b --rlhf_type {words}")["task"] == task


def test_a_tuner_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="tuner_type llamapro is not counted"):
        read(SFT + "--tuner_type llamapro")


def test_all_weights_are_gathered_at_once_on_their_way_to_a_server_unless_in_batches() -> None:
    """A server on other cards, which need not be named."""
    command = GRPO.replace("qwen2.5-7b", "qwen2-0.5b") + "--use_vllm true --vllm_mode server --deepspeed zero3 "
    sent = {}
    for words in ("", "--move_model_batches 8"):
        answer = estimate(merged([read(command + words).layer]))
        sent[words] = next(term.bytes for term in answer.instant("weight_sync").terms if term.path.endswith("on their way to the server"))
    table = 151936 * 896 * 2
    assert sent == {"": 494_032_768 * 2, "--move_model_batches 8": table}


def test_megatron_has_defaults_of_ms_swift() -> None:
    """A compiled loss, rotary positions by operators, routers in fp32, and a vocabulary that is not padded beyond equal parts."""
    words = "NPROC_PER_NODE=2 megatron sft --model qwen3-30b-a3b --max_length 2048 --tensor_model_parallel_size 2 "
    sharding = run_of(words)["sharding"]
    assert [sharding[key] for key in ("cross_entropy_fusion_impl", "apply_rope_fusion", "moe_router_dtype", "make_vocab_size_divisible_by")] == [
        "native", False, "fp32", 1,
    ]  # fmt: skip
    other = run_of(words + "--moe_router_dtype none --moe_permute_fusion true --cross_entropy_fusion_impl te")["sharding"]
    assert (other.get("moe_router_dtype"), other["moe_permute_fusion"], other["cross_entropy_fusion_impl"]) == (None, True, "te")


def test_megatron_lm_switches_fusions_off() -> None:
    """Flags that begin with no."""
    words = "pretrain_gpt.py --tensor-model-parallel-size 1 --micro-batch-size 1 --no-rope-fusion --no-gradient-accumulation-fusion --moe-permute-fusion"
    sharding = read(words).layer.data["sharding"]
    assert [sharding[key] for key in ("apply_rope_fusion", "gradient_accumulation_fusion", "moe_permute_fusion")] == [False, False, True]


RAY = """rlhf_type: grpo
model: qwen2.5-3b
use_vllm: true
micro_batch_size: 2
global_batch_size: 16
max_completion_length: 1024
{groups}
train: {{gpus: 4, tuner_type: lora, lora_rank: 16, tensor_model_parallel_size: 1}}
rollout: {{gpus: 4, vllm_tensor_parallel_size: 2, vllm_gpu_memory_utilization: 0.4}}
"""


@pytest.mark.parametrize(("groups", "cards"), [("colocate_groups: [[train, rollout]]", "same"), ("", "other")])
def test_sections_for_ray_say_who_stands_where(groups: str, cards: str) -> None:
    found = merged([import_text(RAY.format(groups=groups)).layer]).as_dict()
    assert (found["hardware"]["gpus"], found["lora"]["r"], found["rollout"]["cards"], found["rollout"]["tensor_parallel_size"]) == (4, 16, cards, 2)


def test_variables_in_a_file_are_those_of_a_launch(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sft.yaml").write_text("ENV: {NPROC_PER_NODE: 4, PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'}\nmodel: qwen2.5-7b\ntuner_type: lora\n")
    found = run_of("swift sft sft.yaml")
    assert (found["hardware"]["gpus"], found["expandable_segments"]) == (4, True)
    assert run_of("NPROC_PER_NODE=2 swift sft sft.yaml")["hardware"]["gpus"] == 2


@pytest.mark.parametrize("words", ["swift rlhf", "megatron rlhf --tensor_model_parallel_size 1"])
def test_a_packed_row_holds_both_answers_of_its_pairs(words: str) -> None:
    """As many tokens together as max_length says; samples that are not packed are as long each."""
    command = f"NPROC_PER_NODE=2 {words} --rlhf_type dpo --model qwen2.5-7b --max_length 8192 "
    assert (run_of(command)["seq_len"], run_of(command + "--packing true")["seq_len"]) == (8192, 4096)
    assert run_of(command + "--packing true --packing_length 4096")["seq_len"] == 2048
