"""Launch commands as they arrive in argv."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import Imported, import_files

DATA = Path(__file__).parent.parent / "data" / "launch"
SWIFT: list[list[str]] = json.loads((DATA / "ms_swift_argv.json").read_text(encoding="utf-8"))
GIVEN: list[dict[str, str]] = json.loads((DATA / "as_given.json").read_text(encoding="utf-8"))
FILES = {
    "ds.json": "deepspeed__ds_z2_config.json",
    "fsdp2.yaml": "accelerate__fsdp2_config.yaml",
    "lora.yaml": "llamafactory__llama3_lora_sft.yaml",
    "qlora.yaml": "axolotl__qlora-fsdp-70b.yaml",
    "tune.yaml": "torchtune__70B_lora.yaml",
    "titan.toml": "torchtitan__llama3_8b.toml",
}
MEGATRON = (
    "torchrun --nproc-per-node=8 --nnodes=16 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 8192 "
    "--micro-batch-size 1 --global-batch-size 1024 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2 "
    "--sequence-parallel --use-distributed-optimizer --bf16 --recompute-activations"
)
# ruff: noqa: ISC004, E501 (a command stands as it is typed)
COMMANDS: list[tuple[str, dict[str, Any]]] = [
    (
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=$nproc_per_node swift sft --model qwen2.5-7b --deepspeed zero2",
        {"expandable_segments": True, "hardware.gpus": 2, "sharding.engine": "deepspeed"},
    ),
    (
        "torchrun --nproc_per_node=8 --nnodes=2 train.py --model_name_or_path llama-2-7b --bf16 True --per_device_train_batch_size 2 --gradient_accumulation_steps 8 "
        "--gradient_checkpointing True --deepspeed ds.json",
        {"hardware.gpus": 16, "micro_batch": 2, "grad_accum": 8, "recompute": "full", "dtype": "bfloat16", "sharding.engine": "deepspeed"},
    ),
    (
        "torchrun --nproc_per_node=4 train.py --model_name_or_path llama-7b --fp16 True --fsdp 'full_shard auto_wrap' --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer",
        {"sharding.engine": "fsdp1", "dtype": "float32", "autocast": "float16", "micro_batch": 8},
    ),
    (
        "accelerate launch --config_file fsdp2.yaml --num_processes 8 sft.py --model_name_or_path qwen2.5-7b --max_length 8192 --packing --bf16 "
        "--per_device_train_batch_size 1 --use_peft --lora_r 32 --lora_target_modules all-linear",
        {"hardware.gpus": 8, "sharding.engine": "fsdp2", "lora.r": 32, "seq_len": 8192, "recompute": "full"},
    ),
    (
        "deepspeed --num_gpus 8 --num_nodes 2 --module openrlhf.cli.train_sft --model.model_name_or_path llama-3-8b --data.max_len 4096 --train.batch_size 256 "
        "--train.micro_batch_size 2 --ds.zero_stage 2 --ds.adam_offload --model.gradient_checkpointing_enable",
        {"hardware.gpus": 16, "grad_accum": 8, "sharding.deepspeed_auto": "deepspeed", "recompute": "full", "seq_len": 4096},
    ),
    (
        "deepspeed --include localhost:0,1,2,3 train.py --deepspeed --deepspeed_config ds.json --model opt-13b",
        {"hardware.gpus": 4, "model": "opt-13b", "sharding.deepspeed_auto": "deepspeed"},
    ),
    (
        "llamafactory-cli train lora.yaml cutoff_len=4096 per_device_train_batch_size=2",
        {"seq_len": 4096, "micro_batch": 2, "grad_accum": 8, "hardware.gpus": 1},
    ),
    (
        "FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train --stage sft --model_name_or_path qwen2.5-72b --finetuning_type full "
        "--deepspeed examples/deepspeed/ds_z3_offload_config.json --cutoff_len 8192 --per_device_train_batch_size 1 --bf16",
        {"hardware.gpus": 16, "dtype": "bfloat16", "sharding.engine": "deepspeed"},
    ),
    ("axolotl train qlora.yaml --launcher accelerate -- --num_processes 2", {"hardware.gpus": 2, "sharding.engine": "fsdp1", "quantization": "nf4-dq"}),
    (
        "NPROC_PER_NODE=4 swift sft --model qwen2.5-14b --tuner_type full --torch_dtype bfloat16 --max_length 8192 --attn_impl flash_attn --deepspeed zero3",
        {"hardware.gpus": 4, "attention": "flash_attention_2", "micro_batch": 1, "recompute": "full"},
    ),
    (
        "NPROC_PER_NODE=8 megatron sft --model qwen3-30b-a3b --tensor_model_parallel_size 2 --expert_model_parallel_size 8 --sequence_parallel true "
        "--micro_batch_size 1 --global_batch_size 16 --recompute_granularity full",
        {"code": "megatron", "sharding.tp": 2, "sharding.ep": 8, "grad_accum": 4, "dtype": "bfloat16", "sharding.use_distributed_optimizer": True},
    ),
    (
        "tune run --nproc_per_node 8 lora_finetune_distributed --config tune.yaml batch_size=2 tokenizer.max_seq_len=4096",
        {"hardware.gpus": 8, "sharding.engine": "fsdp2", "seq_len": 4096, "lora.r": 16, "model": "llama-3.1-70b"},
    ),
    (MEGATRON, {"hardware.gpus": 128, "sharding.vpp": 4, "grad_accum": 128, "recompute": "selective", "sharding.sp": True, "dtype": "bfloat16"}),
    (
        "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file titan.toml --parallelism.tensor_parallel_degree 2 --training.local_batch_size 3",
        {"code": "torchtitan", "sharding.tp": 2, "micro_batch": 3, "hardware.gpus": 8, "model": "llama-3.1-8b"},
    ),
    (
        "vllm serve llama-3.1-70b --tensor-parallel-size=4 --max-model-len 32768 --gpu-memory-utilization 0.92",
        {"task": "inference", "sharding.tp": 4, "seq_len": 32768},
    ),
    (
        "python -m vllm.entrypoints.openai.api_server --model qwen2.5-7b -tp 2 --max-model-len auto",
        {"sharding.tp": 2, "model": "qwen2.5-7b", "hardware.gpus": 2},
    ),
    ("python -m sglang.launch_server --model-path deepseek-v3 --tp 8 --mem-fraction-static 0.85 --context-length 65536", {"sharding.tp": 8, "seq_len": 65536}),
    ("python -m sglang_router.launch_server --model-path qwen2.5-7b --dp-size 4 --router-policy random", {"model": "qwen2.5-7b", "hardware.gpus": 4}),
    ("python -m vllm.entrypoints.cli.main serve qwen2.5-7b -tp 2", {"model": "qwen2.5-7b", "sharding.tp": 2}),
    (
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=qwen2.5-7b actor_rollout_ref.actor.fsdp_config.param_offload=False "
        "data.max_prompt_length=1024 data.max_response_length=2048 trainer.n_gpus_per_node=8 trainer.nnodes=1 algorithm.adv_estimator=grpo",
        {"task": "grpo", "seq_len": 3072, "hardware.gpus": 8, "dtype": "float32", "autocast": "bfloat16"},
    ),
    (
        "torchrun --standalone --nnodes=1 --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=2 data.train_batch_size=64 "
        "model.partial_pretrain=qwen2.5-0.5b model.lora_rank=32 model.target_modules=all-linear +data.response_dict_keys=['answer']",
        {"micro_batch": 2, "grad_accum": 8, "sharding.engine": "fsdp2", "dtype": "float32", "lora.r": 32, "seq_len": 1024, "recompute": "full"},
    ),
]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_text((DATA / data).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def keys(found: Imported) -> dict[str, Any]:
    """Keys and values."""
    return {origin.key: origin.value for origin in found.origins}


@pytest.mark.parametrize(("command", "told"), COMMANDS, ids=[command[:40] for command, _ in COMMANDS])
def test_a_command_says(command: str, told: dict[str, Any]) -> None:
    found = keys(import_files([], command=shlex.split(command)))
    assert {key: found.get(key) for key in told} == told


def test_sizes_in_a_command_make_a_model() -> None:
    config = json.loads(keys(import_files([], command=shlex.split(MEGATRON)))["model"])
    assert (config["hidden_size"], config["num_query_groups"], config["untie_embeddings_and_output_weights"]) == (4096, 8, True)


@pytest.mark.parametrize("argv", SWIFT, ids=[" ".join(argv[:4])[:50] for argv in SWIFT])
def test_a_measured_command_of_ms_swift_is_read(argv: list[str]) -> None:
    found = keys(import_files([], command=argv))
    cards = next((word.count(",") + 1 for word in argv if word.startswith("CUDA_VISIBLE_DEVICES=")), 1)
    assert found["hardware.gpus"] == cards
    alone = not any(word.startswith("NPROC_PER_NODE=") for word in argv)
    assert found.get("loading.device_map") == ("auto" if alone and cards > 1 else None)
    assert found["model"] == argv[argv.index("--model") + 1]
    assert found["code" if "megatron" in argv else "recompute"] in ("megatron", "full")


@pytest.mark.parametrize("given", [given for given in GIVEN if given["format"].endswith("cli")], ids=lambda given: given["id"])
def test_posted_arguments_are_read(given: dict[str, str]) -> None:
    Path("ds_config.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    assert keys(import_files([], command=shlex.split(given["text"])))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--bf16"], ("autocast", "bfloat16")),
        (["--bf16=true"], ("autocast", "bfloat16")),
        (["--gradient-checkpointing"], ("recompute", "full")),
        (["--no_gradient_checkpointing"], ("recompute", "none")),
        (["--max-length=1k"], ("seq_len", 1000)),
        (["--lora_r", "4", "--use_peft", "--lora_target_modules", "q_proj", "v_proj"], ("lora.target_modules", ["q_proj", "v_proj"])),
    ],
)
def test_arguments_as_people_write_them(words: list[str], told: tuple[str, object]) -> None:
    found = keys(import_files([], command=["python", "train.py", "--model_name_or_path", "llama-7b", *words]))
    assert found[told[0]] == told[1]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["A=1"],
        ["torchrun"],
        ["accelerate", "config"],
        ["llamafactory-cli", "export"],
        ["tune", "run"],
        ["torchrun", "--nproc_per_node", "many", "a.py"],
        ["torchrun", "--nproc_per_node", "--nnodes", "2", "a.py"],
        ["/bin/ls"],
        ["rm", "-rf", "x"],
        ["srun", "ls"],
        ["bash", "run.sh"],
        ["./run.sh"],
    ],
)
def test_what_launches_nothing_is_refused(words: list[str]) -> None:
    with pytest.raises(InputError):
        import_files([], command=words or [" "])


@pytest.mark.parametrize(("cards", "gpus"), [("0,1", 2), (",", 1), ("", 1)])
def test_cards_that_are_seen_are_those_that_have_a_name(cards: str, gpus: int) -> None:
    found = import_files([], command=[f"CUDA_VISIBLE_DEVICES={cards}", "swift", "sft", "--model", "qwen2.5-7b"])
    assert found.layer.data["hardware"]["gpus"] == gpus
