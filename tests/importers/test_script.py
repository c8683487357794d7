"""Python scripts are read by what they call, and never run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import Imported, import_files, import_text

POSTED = {given["id"]: given["text"] for given in json.loads((Path(__file__).parent.parent / "data" / "launch" / "as_given.json").read_text(encoding="utf-8"))}

UNSLOTH = """
from unsloth import FastLanguageModel, is_bfloat16_supported
max_seq_length = 9000 * 2
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/llama-3-8b", max_seq_length=max_seq_length, dtype=None, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, target_modules=["q_proj", "v_proj"], lora_dropout=0, use_gradient_checkpointing="unsloth")
args = TrainingArguments(per_device_train_batch_size=2, gradient_accumulation_steps=4, bf16=is_bfloat16_supported(), optim="adamw_8bit", output_dir="o")
trainer = SFTTrainer(model=model, max_seq_length=max_seq_length, args=args)
"""
QLORA = """
import torch, transformers
from peft import LoraConfig, get_peft_model
base = "meta-llama/Llama-2-13b-hf"
bits = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(base, quantization_config=bits, attn_implementation="flash_attention_2", torch_dtype=torch.bfloat16)
model.gradient_checkpointing_enable()
model = get_peft_model(model, LoraConfig(r=64, target_modules=["q_proj", "v_proj"]))
size = int(args.batch)
trainer = transformers.Trainer(model=model, args=transformers.TrainingArguments(per_device_train_batch_size=size, fp16=True, output_dir="outputs"))
"""
GRPO = """
args = GRPOConfig(output_dir="o", num_generations=8, max_completion_length=512, per_device_train_batch_size=8, bf16=True)
trainer = GRPOTrainer(model="Qwen/Qwen2-0.5B-Instruct", reward_funcs=reward, args=args)
"""
VLLM = 'from vllm import LLM\nllm = LLM(model="facebook/opt-125m", tensor_parallel_size=2, gpu_memory_utilization=0.8)\n'


def read(text: str) -> Imported:
    """A script of this text."""
    return import_text(text, name="posted.py")


TRAINER = "TrainingArguments (transformers, TRL)"


@pytest.mark.parametrize(
    ("text", "title", "keys"),
    [
        (POSTED["c26"], TRAINER, {"model": "Qwen/Qwen2.5-0.5B-Instruct", "task": "dpo", "micro_batch": 8, "dtype": "float32"}),
        (UNSLOTH, "Unsloth YAML", {"model": "unsloth/llama-3-8b", "seq_len": 18000, "micro_batch": 2, "quantization": "nf4", "recompute": "full"}),
        (QLORA, TRAINER, {"model": "meta-llama/Llama-2-13b-hf", "quantization": "nf4-dq", "recompute": "full", "autocast": "float16"}),
        (GRPO, TRAINER, {"model": "Qwen/Qwen2-0.5B-Instruct", "task": "grpo", "micro_batch": 8}),
        (VLLM, "vLLM YAML and flags", {"model": "facebook/opt-125m", "task": "inference", "code": "vllm"}),
    ],
    ids=["dpo", "unsloth", "qlora", "grpo", "vllm"],
)
def test_a_script_is_the_run_that_it_calls_for(text: str, title: str, keys: dict[str, Any]) -> None:
    found = read(text)
    assert found.files == (("posted.py", title),)
    assert {key: found.layer.data.get(key) for key in keys} == keys


def test_defaults_that_older_versions_do_not_have_are_said() -> None:
    """trl 3168: a run of March 2025 had neither, and did not fit 80 GB."""
    (said,) = [line for line in read(POSTED["c26"]).assumed if "young" in line]
    assert "--recompute none" in said
    assert "--autocast none" in said
    assert not any("young" in line for line in read(GRPO.replace("bf16=True", "bf16=True, gradient_checkpointing=True")).assumed)


def test_a_trainer_of_pairs_over_unsloths_model() -> None:
    """unsloth 682: ORPO and DPO of Llama 3 8B in 4 bits on a T4."""
    found = read(UNSLOTH.replace("SFTTrainer(model=model, max_seq_length=max_seq_length", "DPOTrainer(model=model, ref_model=None, max_length=1024"))
    assert (found.layer.data["task"], found.layer.data["seq_len"], found.layer.data["lora"]["r"]) == ("dpo", 1024, 16)


def test_what_a_script_does_not_write_down_is_listed_with_its_line() -> None:
    found = read(QLORA)
    assert "posted.py:10: per_device_train_batch_size '$int(args.batch)': nothing that is given says its value" in found.unused
    assert found.layer.data["lora"] == {"r": 64, "target_modules": ["q_proj", "v_proj"], "dtype": "float32"}
    assert "loss" not in found.layer.data  # it is not TRL's trainer


CONDITIONS = """
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
def main(args):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B", torch_dtype=dtype, attn_implementation="flash_attention_2")
    if args.lora:
        model = get_peft_model(model, LoraConfig(r=8))
    reference = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
    Trainer(model=model, args=TrainingArguments(per_device_train_batch_size=4, gradient_checkpointing=True, output_dir="o")).train()
if __name__ == "__main__":
    main(parse())
"""


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (
            'm = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float16)\nm.generate(**x)\n',
            {"task": "inference", "dtype": "float16", "micro_batch": 1},
        ),
        ('p = pipeline("text-generation", model="gpt2", torch_dtype=torch.bfloat16)\n', {"model": "gpt2", "task": "inference", "dtype": "bfloat16"}),
        ('m = AutoModelForCausalLM.from_pretrained("gpt2")\nm(**x).loss.backward()\nm.generate(**x)\n', {"task": None, "model": "gpt2", "dtype": "float32"}),
        ('SFTTrainer("gpt2", args=SFTConfig(output_dir="o", per_device_train_batch_size=2)).train()\n', {"model": "gpt2", "micro_batch": 2}),
    ],
    ids=["generate", "pipeline", "loop", "positional"],
)
def test_what_a_script_does_with_its_model(text: str, keys: dict[str, Any]) -> None:
    found = read(text).layer.data
    assert {key: found.get(key) for key in keys} == keys


def test_branches_that_a_script_does_not_decide_are_listed() -> None:
    found = read(CONDITIONS)
    assert {key: found.layer.data.get(key) for key in ("model", "micro_batch", "attention", "dtype", "lora")} == {
        "model": "Qwen/Qwen3-8B", "micro_batch": 4, "attention": "flash_attention_2", "dtype": "bfloat16", "lora": None,
    }  # fmt: skip
    assert any("use_peft '$True if args.lora': nothing that is given says its value" in line for line in found.unused)


def test_a_command_takes_what_its_script_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it lies here, and its arguments say nothing of training; beside them it is given as a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpo.py").write_text(GRPO, encoding="utf-8")
    command = ["accelerate", "launch", "--num_processes", "4", "grpo.py"]
    for files, more in (([], []), (["grpo.py"], ["--learning_rate", "1e-6"])):
        data = import_files(files, command=[*command, *more]).layer.data
        assert (data["model"], data["hardware"]["gpus"], data["micro_batch"]) == ("Qwen/Qwen2-0.5B-Instruct", 4, 8)


def test_nothing_is_run(tmp_path: Path) -> None:
    read(f'open({str(tmp_path / "made")!r}, "w")\nx = 9 ** 9 ** 9 ** 9\n' + VLLM)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print(1)\n", "posted.py: makes no call of transformers"),
        ("a = 1\nx = (\n", "posted.py:2: is no Python"),
        ("x = " + "(" * 5000, "posted.py"),
        ("\0", "posted.py: is no Python"),
        ("x = " + "-" * 50000 + "1", "posted.py"),
        ("x = " + "1 + " * 5000 + "1", "posted.py"),
    ],
)
def test_what_says_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(text)
