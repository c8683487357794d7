"""What a log says after a crash: public reports are diagnosed to the tensor or the cause that they turned out to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from memcalc.report.diagnose import cause_line
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.diagnose import Finding, diagnose
from memcalc.whatif.diagnose.message import request_bytes, size

DATA = Path(__file__).resolve().parents[1] / "data"
REPORTS: dict[str, dict[str, str]] = {report["id"]: report for report in yaml.safe_load((DATA / "crashes.yaml").read_text(encoding="utf-8"))}

ZERO = {"overlap_comm": False, "contiguous_gradients": True}
ZERO2 = {**ZERO, "stage": 2, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8, "reduce_scatter": True, "round_robin_gradients": True}
ZERO3 = {
    **ZERO,
    "stage": 3,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "sub_group_size": 1e9,
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
}
OFFLOADED = {**ZERO3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}


LORA = {"r": 64, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "out_proj"], "dtype": "bfloat16"}


def frame(file: str, function: str) -> str:
    """A line of a traceback."""
    return f'  File "{file}", line 1, in {function}\n'


def told(name: str) -> str:
    """The line of a report."""
    return f"{REPORTS[name]['line']}\n"


def run(model: str, file: dict[str, Any] | None = None, **keys: Any) -> Run:
    """A run, under the Trainer's DeepSpeed files where a stage is given."""
    config = {"deepspeed": {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": file}} if file else {}
    return read_run(model, **{"dtype": "float16", "recompute": "full", "seq_len": 512, **config, **keys})


def one(lines: list[str], job: Run | None = None) -> Finding:
    """The only finding."""
    (finding,) = diagnose(lines, job).findings
    return finding


def names(finding: Finding) -> list[str]:
    """The causes, the most telling first."""
    return [cause.name for cause in finding.causes]


@pytest.mark.parametrize("name", REPORTS)
def test_every_reported_wording_parses(name: str) -> None:
    finding = one([told(name)])
    assert finding.causes or finding.crash.message.wording == "the words alone"
    if "Tried to allocate" in REPORTS[name]["line"]:
        assert finding.crash.message.wanted is not None
        assert finding.crash.message.capacity is not None


def test_the_second_temporary_of_an_unfused_adam_is_a_vector_of_the_partition() -> None:
    """LLaMA-7B, ZeRO-2, 8 x V100-32GB: 4P/8, with 28.24 GiB alive beside it where 28.28 were told (c01)."""
    job = run("llama-7b", ZERO2, dp=8, gpu="v100-32g", optimizer="adamw_torch", optimizer_foreach=False)
    finding = one([frame("torch/optim/adamw.py", "step"), told("c01")], job)
    best = finding.matches[0]
    assert (best.how, best.request.name) == ("exact", "one vector in fp32 of this rank's partition")
    assert best.bytes == 6738415616 * 4 // 8
    assert best.alive_bytes == pytest.approx(28.28 * 2**30, rel=0.002)
    assert finding.position is not None
    assert finding.position.name == "optimizer step"
    assert names(finding) == ["does not fit"]


@pytest.mark.parametrize(("report", "dtype", "keys"), [("c03", "float16", {"dp": 5, "gpu": "v100-32g"}), ("c03-1", "float32", {"dp": 1, "gpu": "a100-80g"})])
def test_a_gathered_layer_is_known_by_its_size(report: str, dtype: str, keys: dict[str, Any]) -> None:
    """388 MiB are one decoder layer of 202,383,360 parameters in fp16, 774 MiB in fp32: both are printed as the allocator rounds them (c03)."""
    shared = {"dtype": "float32", "autocast": "float16", "attention": "eager", "recompute": "none", "engine": "fsdp1", "reduce_dtype": "float16"}
    shared |= {"grad_accum": 8, "sync_each_batch": False}
    finding = one([told(report)], run("llama-7b", **shared, **keys))
    width = {"float16": 2, "float32": 4}[dtype]
    assert finding.matches[0].request.name.startswith("the unit layers gathered")
    assert finding.matches[0].bytes == 202_383_360 * width
    assert "does not fit" in names(finding)


def test_without_a_size_the_estimate_says_what_does_not_fit() -> None:
    """Llama-3-8B, ZeRO-3 on 8 x 24 GB: at the border by its tensors, over it in the allocator's pieces (c05)."""
    finding = one(["RuntimeError: CUDA out of memory.\n"], run("llama-3-8b", ZERO3, dp=8, seq_len=1024, optimizer="adamw_torch", gpu="3090"))
    assert names(finding) == ["does not fit"]
    assert finding.causes[0].facts["instant"] == "optimizer_step"


def test_a_whole_model_on_every_rank_shows_in_what_deepspeed_tells() -> None:
    """55.83 GB cached, whatever the number of nodes, are 2P: not 2P/16 (c13). What failed is the attention matrix in fp32."""
    finding = one([f"{REPORTS['c13']['also']}\n", told("c13")], run("opt-30b", OFFLOADED, dp=16, seq_len=2048, gpu="a100-80g"))
    assert names(finding)[0] == "whole model on every rank"
    assert finding.causes[0].facts["whole_bytes"] == pytest.approx(55.83 * 2**30, rel=1e-3)
    assert finding.matches[0].bytes == 56 * 2048**2 * 4
    assert finding.matches[0].request.supposed


def test_room_in_pieces_is_fragmentation() -> None:
    """1.45 GiB for a gathered table of 152,064 x 5120, with 3.05 GiB reserved and unused and 1.31 free (c17; a table of the same size)."""
    lora = {"r": 8, "target_modules": ["q_proj", "v_proj"]}
    finding = one([told("c17")], run("qwen2.5-14b", ZERO3, dp=2, attention="eager", lora=lora, gpu="3090"))
    assert names(finding)[0] == "fragmentation"
    assert finding.matches[0].bytes == 152064 * 5120 * 2
    assert "embed_tokens.weight" in finding.matches[0].request.name


def test_an_allocation_is_turned_into_tokens() -> None:
    """9.47 GiB are fp32 logits of 2 x 9,910 tokens, of at most 18,000 (c19)."""
    keys = {"quantization": "nf4", "kbit_upcast": False, "lora": {"r": 16}, "seq_len": 18000, "micro_batch": 2, "gpu": "t4"}
    finding = one([frame("accelerate/utils/operations.py", "convert_to_fp32"), told("c19")], run("llama-3.1-8b", **keys))
    best = finding.matches[0]
    assert (best.how, best.seq_len, best.request.name) == ("at another length", 9910, "logits in fp32")
    assert names(finding)[0] == "long sample"
    assert 0 < finding.causes[0].facts["fitting_seq_len"] < 9910


def test_a_late_failure_in_the_loss_is_a_long_sample() -> None:
    """127 steps had gone well; at the full cutoff the loss does not fit, at some three quarters of it it does (c23)."""
    lines = ["  4%|x| 127/3000 [1:00<3, 3it/s]\r\n", frame("torch/nn/functional.py", "cross_entropy"), "torch.OutOfMemoryError: CUDA out of memory.\n"]
    job = run("qwen3.5-27b", engine="deepspeed", zero=3, dp=3, dtype="bfloat16", seq_len=8192, lora=LORA, gpu="l40s")
    finding = one(lines, job)
    assert finding.crash.step == 127
    assert finding.position is not None
    assert finding.position.name == "loss"
    cause = finding.causes[0]
    assert cause.name == "long sample"
    assert cause.facts["fitting_seq_len"] == pytest.approx(6500, rel=0.05)


def test_a_save_is_not_the_step() -> None:
    """LLaMA-7B and one token more under FSDP on 8 x A100-40GB: 502 MiB are the head in fp32 beside a full state dict of 25.1 GiB (c24)."""
    keys = {"dtype": "float32", "autocast": "bfloat16", "recompute": "none", "engine": "fsdp1", "reduce_dtype": "bfloat16", "dp": 8, "gpu": "a100-40g"}
    finding = one([told("c24")], run("llama-7b", **keys))
    assert names(finding)[0] == "checkpoint save"
    assert "does not fit" in names(finding)
    best = finding.matches[0]
    assert best.request.name == "embed_tokens.weight or lm_head.weight gathered whole in fp32"
    assert request_bytes(32001 * 4096 * 4) == finding.crash.message.wanted.bytes  # type: ignore[union-attr]


def test_a_killed_process_is_held_against_its_host() -> None:
    """DeepSpeed had said how much of the host was in use; the estimate says how much stage 3 puts there (c10)."""
    said = "[utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 692.91 GB, percent = 93.1%\n"
    finding = one([said, told("c10")], run("qwen2.5-32b", OFFLOADED, gpus=1, gpu="h100-nvl-94g"))
    (cause,) = finding.causes
    assert cause.name == "host memory"
    assert cause.facts["there_bytes"] == pytest.approx(744 * 2**30, rel=0.001)
    assert 590e9 < cause.facts["estimate_bytes"] < 885e9


def test_ranks_are_told_apart_and_repetitions_counted() -> None:
    line = told("c01")
    found = diagnose([f"[rank5]: {line}", f"[rank6]: {line}", f"[rank5]: {line}"]).findings
    assert [(f.crash.rank, f.crash.times) for f in found] == [("5", 2), ("6", 1)]


def test_a_printed_size_admits_what_would_be_printed_so() -> None:
    """The allocator rounds to 2 MiB before the message is written."""
    printed = size("502.00 MiB")
    assert printed is not None
    assert printed.admits(request_bytes(32001 * 4096 * 4))
    assert not printed.admits(request_bytes(32000 * 4096 * 4))


def test_blocks_on_the_host_tell_the_degree() -> None:
    """OpenRLHF 336: 4 GiB in 1,638 blocks; of 80 GB cards Llama 3 70B has that many on two, whose weights leave 945 MiB (c31)."""
    served = {"task": "inference", "code": "vllm", "gpu": "a100-80g", "max_model_len": 8192}
    said = [f"INFO {REPORTS['c31']['also']}\n", told("c31")]
    (alone,) = one(said).causes
    assert alone.facts["swapped_token_bytes"] == 163_880
    for tp in (2, 4):
        (cause,) = one(said, read_run("llama-3-70b", tp=tp, **served)).causes
        assert (cause.name, cause.facts["tp"], cause.facts["asked_tp"]) == ("refusal", 2, tp)
        text = cause_line(cause)
        assert ("65.71 GiB of weights on a card leave 945.00 MiB where 1.25 GiB are needed" in text) == (tp == 2)
        assert ("tensor parallelism 2, not 4" in text) == (tp == 4)


def test_more_in_tensors_than_a_server_takes_in_all_is_its_loading() -> None:
    """vllm-gfx906 14: weights that are packed stand in both forms (c36)."""
    keys = {"task": "inference", "code": "vllm", "gpu": "mi50-16g", "max_model_len": 4000, "gpu_memory_utilization": 0.9}
    finding = one([told("c36")], read_run("Qwen3-32B-autoround-4bit-gptq", tp=2, **keys))
    assert names(finding) == ["loading"]
    assert "packed weights are 9.02 GiB in steady state, and stand twice (18.03 GiB)" in cause_line(finding.causes[0])


def test_what_others_hold_of_a_servers_share_is_said() -> None:
    line = "ValueError: Free memory on device (21.18/23.65 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB). Decrease …\n"
    (cause,) = one([line]).causes
    assert "2.47 GiB are taken already" in cause_line(cause)
    assert "a share of 0.89" in cause_line(cause)


def test_a_sampler_without_room_asks_for_fewer_sequences() -> None:
    (cause,) = one(["RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try …\n"]).causes
    assert "logits of 1,024 sequences at once" in cause_line(cause)
