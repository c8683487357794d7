"""A run written in a format and read again asks for the same estimate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.importers.export import export, exporters
from memcalc.specs.read import Layer, merged, read_run
from memcalc.specs.run import Run

LLAMA = {"model": "llama-3.2-1b", "seq_len": 512}
DEEPSPEED: dict[str, Any] = {"dtype": "bfloat16", "sharding": {"engine": "deepspeed", "zero": 3, "dp": 4}, "grad_accum": 2, "micro_batch": 2}
OFFLOADED: dict[str, Any] = {"dtype": "bfloat16", "sharding": {"engine": "deepspeed", "zero": 2, "dp": 4}, "offload": {"optimizer": "cpu"}}
CONFIGURED: dict[str, Any] = {
    "sharding": {"dp": 4, "deepspeed": {"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7}, "bf16": {"enabled": True}}},
    "micro_batch": 2,
}
FSDP2: dict[str, Any] = {
    "dtype": "float32", "autocast": "bfloat16", "recompute": "full",
    "sharding": {"engine": "fsdp2", "dp": 8, "reduce_dtype": "bfloat16", "fsdp_wrap_ends": True, "reshard_after_forward": False},
}  # fmt: skip
FSDP1: dict[str, Any] = {
    "dtype": "float32", "autocast": "bfloat16",
    "sharding": {"engine": "fsdp1", "dp": 4, "reduce_dtype": "bfloat16", "fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_backward_prefetch": "BACKWARD_POST"},
}  # fmt: skip
LORA: dict[str, Any] = {
    "dtype": "bfloat16",
    "autocast": "bfloat16",
    "lora": {"r": 8, "target_modules": ["q_proj", "v_proj"], "dtype": "float32"},
    "recompute": "full",
}
TITAN: dict[str, Any] = {
    "code": "torchtitan",
    "dtype": "float32", "autocast": "bfloat16", "model": "llama-3.1-8b", "optimizer": "adamw_torch_fused", "recompute": "full", "micro_batch": 2,
    "sharding": {"engine": "fsdp2", "dp": 8, "reduce_dtype": "float32", "fsdp_wrap_ends": True}, "grad_accum": 2,
}  # fmt: skip
MEGATRON: dict[str, Any] = {
    "code": "megatron", "dtype": "bfloat16", "attention": "flash_attention_2", "optimizer": "adamw_torch_fused", "recompute": "selective", "grad_accum": 4,
    "sharding": {"engine": "megatron", "dp": 2, "tp": 2, "pp": 2, "sp": True, "use_distributed_optimizer": True}, "hardware": {"gpus": 8},
}  # fmt: skip
VLLM: dict[str, Any] = {
    "task": "inference",
    "code": "vllm",
    "hardware": {"gpu": "h100-80g"},
    "serving": {"gpu_memory_utilization": 0.8, "max_num_seqs": 8},
    "dtype": "bfloat16",
    "sharding": {"tp": 2},
}

CASES = [
    ("deepspeed", "json", DEEPSPEED), ("deepspeed", "json", OFFLOADED), ("deepspeed", "json", CONFIGURED),
    ("accelerate", "yaml", DEEPSPEED | {"micro_batch": 1}),
    ("accelerate", "yaml", FSDP2), ("accelerate", "yaml", FSDP1), ("trainer", "yaml", LORA), ("trainer", "yaml", DEEPSPEED), ("torchtitan", "toml", TITAN),
    ("megatron", "", MEGATRON), ("vllm", "", VLLM),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ending", "keys"), CASES, ids=[f"{name}{i}" for i, (name, _, _) in enumerate(CASES)])
def test_what_is_exported_and_read_again_is_the_same(name: str, ending: str, keys: dict[str, Any], tmp_path: Path) -> None:
    run = read_run(LLAMA | keys)
    text = export(run, name)
    if ending:
        path = tmp_path / f"exported.{ending}"
        path.write_text(text, encoding="utf-8")
        found = import_files([str(path)])
    else:
        words = text.split()
        found = import_files([], command=words if name == "vllm" else ["torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", *words])
    own = {"sharding": {"dp": run.sharding.dp}} if run.sharding.dp else {}
    given: dict[str, Any] = {
        key: value
        for key, value in (LLAMA | keys).items()
        if key in ("model", "seq_len") or (name in ("deepspeed", "accelerate") and key == "optimizer") or key == "hardware"
    }
    again = merged([found.layer, Layer(given | own)])
    assert peaks(again) == peaks(run)


def peaks(run: Run) -> dict[str, Any]:
    """Bytes of every instant; of code that is not counted yet, the run."""
    if run.code == "torchtitan":
        shown = run.as_dict()
        shown.pop("hardware")
        return shown
    return {instant.name: instant.allocated_bytes for instant in estimate(run).ranks[0].instants}


def test_a_format_refuses_what_it_cannot_say() -> None:
    run = read_run("llama-7b")
    for name in ("deepspeed", "torchtitan", "megatron", "vllm"):
        with pytest.raises(InputError):
            export(run, name)
    with pytest.raises(InputError, match="unknown format 'toml'"):
        export(run, "toml")
    assert {"deepspeed", "accelerate", "trainer", "torchtitan", "megatron", "vllm"} <= set(exporters())


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_deepspeed_itself_loads_what_is_exported() -> None:
    config = pytest.importorskip("deepspeed.runtime.config")
    for keys in (DEEPSPEED, OFFLOADED, CONFIGURED):
        run = read_run(LLAMA | keys)
        loaded = config.DeepSpeedConfig(json.loads(export(run, "deepspeed")))
        given = run.sharding.deepspeed
        stage = given["zero_optimization"]["stage"] if isinstance(given, dict) else run.sharding.zero
        assert (loaded.zero_config.stage, loaded.bfloat16_config.enabled) == (stage, True)
        assert (loaded.train_micro_batch_size_per_gpu, loaded.gradient_accumulation_steps) == (run.micro_batch, run.grad_accum)
        offload = loaded.zero_config.offload_optimizer
        assert (None if offload is None else str(getattr(offload.device, "value", offload.device))) == run.offload.optimizer


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keys", [FSDP2, FSDP1, DEEPSPEED | {"micro_batch": 1}], ids=["fsdp2", "fsdp1", "deepspeed"])
def test_accelerate_itself_launches_with_what_is_exported(keys: dict[str, Any], tmp_path: Path) -> None:
    """The environment that `accelerate launch --config_file` hands to its processes says what the run says."""
    launch = pytest.importorskip("accelerate.commands.launch")
    from accelerate.utils import launch as environments

    run = read_run(LLAMA | keys)
    path = tmp_path / "accelerate.yaml"
    path.write_text(export(run, "accelerate"), encoding="utf-8")
    arguments, _, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(["--config_file", str(path), "train.py"]))
    assert arguments.num_processes == run.sharding.dp
    sharding = run.sharding
    if sharding.engine == "deepspeed":
        arguments.deepspeed_fields_from_accelerate_config = ""  # as launch_command does
        _, found = environments.prepare_deepspeed_cmd_env(arguments)
        assert (found["ACCELERATE_DEEPSPEED_ZERO_STAGE"], found["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"]) == (str(sharding.zero), str(run.grad_accum))
        return
    found = environments.prepare_multi_gpu_env(arguments)
    assert (found["ACCELERATE_USE_FSDP"], found["ACCELERATE_MIXED_PRECISION"], found["FSDP_VERSION"]) == ("true", "bf16", (sharding.engine or "")[-1])
    assert found["FSDP_AUTO_WRAP_POLICY"] == sharding.fsdp_auto_wrap_policy
    if sharding.engine == "fsdp2":
        assert found["FSDP_RESHARD_AFTER_FORWARD"] == "false"
        assert found["FSDP_ACTIVATION_CHECKPOINTING"] == "true"
    else:
        assert (found["FSDP_SHARDING_STRATEGY"], found["FSDP_BACKWARD_PREFETCH"]) == (sharding.fsdp_sharding_strategy, sharding.fsdp_backward_prefetch)
