"""Arguments of alpaca-lora."""

from __future__ import annotations

import shlex

from memcalc.importers import import_files

START = "torchrun --nproc_per_node 4 finetune.py --base_model llama-7b --batch_size 128 --micro_batch_size 4"
COMMAND = f"{START} --cutoff_len 512 --lora_target_modules '[q_proj,k_proj]'"


def test_what_its_code_says_is_put_in() -> None:
    found = {origin.key: origin.value for origin in import_files([], command=shlex.split(COMMAND)).origins}
    assert (found["model"], found["micro_batch"], found["grad_accum"], found["seq_len"]) == ("llama-7b", 4, 8, 512)
    assert (found["quantization"], found["lora.r"], found["lora.target_modules"]) == ("int8", 8, ["q_proj", "k_proj"])
    assert (found["autocast"], found["recompute"], found["hardware.gpus"]) == ("float16", "full", 4)
