"""What a run that fits may die of: each incident's bytes against a closed form, a report, or two estimates that traces hold."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.whatif.stress import Stressed, names, scenarios, stress
from memcalc.whatif.stress.situation import Incident

G = 2**30
LLAMA_7B, LLAMA_13B, MIXTRAL = 6738415616, 13015864320, 46702792704

RUNS: dict[str, dict[str, Any]] = {
    "plain": {"model": "qwen2.5-0.5b", "gpu": "24GiB", "seq_len": 512, "micro_batch": 2},
    "fp16": {"model": "llama-7b", "gpu": "a100-80g", "dtype": "float16", "zero": 2, "dp": 8, "recompute": "full", "seq_len": 512},
    "13b": {
        "model": "llama-13b",
        "zero": 3,
        "dp": 4,
        "gpu": "v100-32g",
        "dtype": "float16",
        "offload_optimizer": "cpu",
        "recompute": "full",
        "seq_len": 2048,
        "micro_batch": 4,
    },
    "fsdp": {
        "model": "llama-7b",
        "engine": "fsdp1",
        "dp": 8,
        "gpu": "a100-40g",
        "dtype": "float32",
        "autocast": "bfloat16",
        "reduce_dtype": "bfloat16",
        "seq_len": 512,
    },
    "experts": {"model": "mixtral-8x7b", "engine": "fsdp2", "ep": 4, "gpus": 8, "gpu": "h100-80g", "recompute": "full", "seq_len": 1024},
    "dpo": {"model": "qwen2.5-0.5b", "task": "dpo", "gpu": "24GiB", "seq_len": 256},
    "lora": {"model": "llama-7b", "gpu": "a100-40g", "lora_r": 16, "seq_len": 512},
    "stages": {"model": "llama-7b", "code": "megatron", "engine": "megatron", "pp": 4, "gpus": 4, "grad_accum": 8, "gpu": "a100-80g", "seq_len": 1024},
}


@cache
def struck(run: str, longest: int | None = None) -> Stressed:
    """A run under all incidents but those that take seconds."""
    return stress(read_run(None, **RUNS[run]), only=[name for name in names() if name != "fragmentation"], longest=longest)


def one(run: str, name: str, longest: int | None = None) -> Incident:
    """One incident."""
    return next(incident for incident in struck(run, longest).incidents if incident.name == name)


VOCAB_7B = 512 * 32000 * 4

CLOSED: list[tuple[str, str, float]] = [
    # 32 heads, 10,000 tokens, 2 bytes: 6.4 GB, and twice that for their softmax in fp32.
    ("fp16", "attention-matrix", 32 * 10_000**2 * (2 + 4)),
    ("fp16", "fp16-overflow/unscaled", LLAMA_7B * 4 // 8),
    ("fp16", "fp16-overflow/masters", LLAMA_7B * 4 // 8),
    ("fp16", "loss-on-logits/entropy", (6 - 2) * VOCAB_7B),
    ("fp16", "loss-on-logits/distillation", (7 - 2) * VOCAB_7B),
    ("fp16", "loss-pairwise/samples", 3 * 8**2 * 4),
    ("fp16", "loss-pairwise/tokens", 2 * 512**2 * 4),
    ("fp16", "loss-spike", 0),
    # What FSDP gathers of 13 billion parameters in 16 bits: 26 GB.
    ("13b", "checkpoint-gathered", LLAMA_13B * 2),
    ("fsdp", "checkpoint-gathered", LLAMA_7B * 4),
    ("fsdp", "checkpoint-optimizer", LLAMA_7B * 8),
    ("fsdp", "checkpoint-sharded/direct", 0),
    ("fp16", "logging-gradients/norm", LLAMA_7B // 8 * 8),
    ("fp16", "logging-gradients/histogram", LLAMA_7B // 8 * 11),
    ("fsdp", "logging-gradients/norm", 32000 * 4096 // 8 * 8),
    ("fp16", "logging-activations/histogram", 512 * 4096 * 11),
    # Of the largest matrix, 4096 x 11008, the product of the adapters in fp32, twice; safely with a copy in bf16 and a mask.
    ("lora", "adapters-merged/plain", 4096 * 11008 * 8),
    ("lora", "adapters-merged/safe", 4096 * 11008 * 11),
    ("lora", "generation", 2 * 32 * 32 * 128 * 2 * 511 + 32000 * 4),
    ("fp16", "first-step", 0),
    ("fp16", "accumulation/changed", 0),
    ("fp16", "resume", LLAMA_7B * 12 // 8),
    ("experts", "moe-collapse/capacity", 0),
]


@pytest.mark.parametrize(("run", "name", "expected"), CLOSED, ids=[f"{run}-{name}" for run, name, _ in CLOSED])
def test_the_bytes_are_a_closed_forms(run: str, name: str, expected: float) -> None:
    incident = one(run, name, 10_000)
    if name == "moe-collapse/capacity":
        assert 0 < incident.extra_bytes < one(run, "moe-collapse/all", 10_000).extra_bytes / 2
        return
    assert incident.extra_bytes == pytest.approx(expected, rel=2e-3)
    assert incident.survives is not None


def test_returned_attention_is_eager_and_kept_where_backward_would_compute_it_again() -> None:
    """Of all layers, 32 heads x 512^2 in 16 bits; without recomputation backward saves it anyway."""
    returned, eager = one("fp16", "logging-activations/attention"), estimate(read_run(None, **RUNS["fp16"], attention="eager"))
    more = eager.instant("forward_peak").allocated_bytes - _before("fp16", "forward_peak")
    assert returned.extra_bytes - more == 32 * 32 * 512**2 * 2
    saved, eager = one("plain", "logging-activations/attention"), estimate(read_run(None, **RUNS["plain"], attention="eager"))
    assert saved.extra_bytes == eager.instant("forward_peak").allocated_bytes - _before("plain", "forward_peak")


def test_every_scenario_is_held_by_some_test() -> None:
    held = {name.partition("/")[0] for _, name, _ in CLOSED}
    elsewhere = {"long-sample", "attention-fallback", "softmax-in-fp32", "checkpoint-save", "evaluation", "pipeline-stages", "fragmentation"}
    assert held | elsewhere == set(scenarios.every())


def test_a_save_that_gathers_everything_is_not_survived() -> None:
    """13B under ZeRO-3 on four cards of 32 GB: 26 GB on top of what is there; the engine's own way gathers one module at a time."""
    gathered, own = one("13b", "checkpoint-gathered"), one("13b", "checkpoint-save")
    assert gathered.extra_bytes == pytest.approx(26e9, rel=0.002)
    assert gathered.survives is False
    assert own.survives
    assert own.extra_bytes < 0.5 * G
    assert own.host_bytes == LLAMA_13B * 2


def test_a_full_state_dict_under_fsdp_is_that_of_the_report() -> None:
    """LLaMA-7B on 8 x A100-40GB: 25.1 GiB of clones and the last unit gathered (stanford_alpaca issue 65)."""
    saved = one("fsdp", "checkpoint-save")
    assert saved.extra_bytes / G == pytest.approx(25.10 + 0.98, abs=0.01)
    assert saved.survives is False


def test_kept_logits_are_those_of_the_report() -> None:
    """Pythia: 103 MB of fp32 logits for each sample of 512 tokens (transformers issue 25313)."""
    run = read_run("pythia-6.9b", engine="fsdp1", dp=8, dtype="float32", autocast="bfloat16", seq_len=512, gpu="a100-80g")
    some, more = (stress(run, only=["evaluation/logits"], samples=n).incidents[0] for n in (1000, 2000))
    (host,) = stress(run, only=["evaluation/host"], samples=15011).incidents
    assert host.survives
    assert host.host_bytes / 8 == pytest.approx(1.55e12, rel=0.01)
    assert more.extra_bytes - some.extra_bytes == pytest.approx(2 * 1000 * (512 * 50432 * 4 + 512 * 8), rel=0.01)
    assert some.survives is False


@pytest.mark.parametrize(
    ("run", "name", "keys"),
    [
        ("plain", "long-sample/longest", {"seq_len": 1024}),
        ("plain", "long-sample/packed", {"seq_len": 1024, "micro_batch": 1, "packing": True}),
        ("plain", "attention-fallback/eager", {"attention": "eager"}),
        ("plain", "attention-fallback/mask", {"attention_mask": True}),
        ("plain", "evaluation/batch", {"evaluation": {"micro_batch": 8}}),
        ("experts", "moe-collapse/2", {"expert_imbalance": 2.0}),
        ("experts", "moe-collapse/all", {"expert_imbalance": 4.0}),
        ("lora", "accumulation/last", {"grad_accum": 2}),
        ("dpo", "long-sample/longest", {"seq_len": 512}),
    ],
)
def test_another_run_for_a_step_is_that_runs_estimate(run: str, name: str, keys: dict[str, Any]) -> None:
    """Whose instants traces hold."""
    incident = one(run, name)
    other = estimate(read_run(None, **{**RUNS[run], **keys}))
    assert incident.peak_bytes == max(other.peak.allocated_bytes, struck(run).peak_bytes)
    assert incident.extra_bytes == other.instant(incident.instant).allocated_bytes - _before(run, incident.instant)


def _before(run: str, instant: str) -> int:
    answer = estimate(read_run(None, **RUNS[run]))
    return next((i.allocated_bytes for i in answer.most_loaded.instants if i.name == instant), answer.instant("start").allocated_bytes)


@pytest.mark.parametrize(("attention", "curved"), [("flash_attention_2", False), ("eager", True)])
def test_with_a_fused_kernel_a_long_sample_costs_its_linear_part_alone(attention: str, curved: bool) -> None:
    run = read_run(None, **{**RUNS["plain"], "attention": attention, "micro_batch": 1})
    two, three = (stress(run, only=["long-sample/longest"], longest=n).incidents[0] for n in (1024, 1536))
    assert (three.extra_bytes > 2.05 * two.extra_bytes) is curved


def test_in_fp16_a_skipped_step_leaves_gradients() -> None:
    """Stage 0 holds them whole: twice the bytes of half a billion parameters, from forward on."""
    run = read_run("qwen2.5-0.5b", dtype="float16", gpu="24GiB", seq_len=64)
    skipped = next(i for i in stress(run, only=["fp16-overflow"]).incidents if i.name.endswith("skipped"))
    assert skipped.extra_bytes == pytest.approx(494032768 * 2, rel=0.01)


def test_eager_attention_has_the_upcast_already() -> None:
    run = {**RUNS["plain"], "attention": "eager"}
    (incident,) = stress(read_run(None, **run), only=["softmax-in-fp32"]).incidents
    assert incident.extra_bytes == 2 * 14 * 512**2 * 4


def test_the_first_stage_holds_more_in_flight_than_the_last() -> None:
    """Four micro-batches against one: at least the inputs of three more through eight layers."""
    incident = one("stages", "pipeline-stages")
    hidden = sum(n for path, n in incident.extra.items() if path.startswith("activations/") and n > 0)
    assert hidden > 3 * 8 * 34 * 1024 * 4096 / 2


def test_varying_lengths_fragment_fixed_segments_more() -> None:
    fixed, growing = stress(read_run(None, **RUNS["plain"]), only=["fragmentation"]).incidents
    assert fixed.extra_bytes > growing.extra_bytes >= 0


def test_only_takes_names_groups_and_variants() -> None:
    assert names(["checkpoint"]) == ["adapters-merged", "checkpoint-gathered", "checkpoint-optimizer", "checkpoint-save", "checkpoint-sharded"]
    assert names(["evaluation/logits"]) == ["evaluation"]
    with pytest.raises(InputError, match="did you mean long-sample"):
        names(["long-samples"])
    with pytest.raises(InputError, match="made of phases"):
        stress(read_run("qwen2.5-0.5b", task="ppo", gpu="a100-80g", seq_len=64))
    with pytest.raises(InputError, match="incidents strike training"):
        stress(read_run("llama-7b", task="inference", gpu="a100-80g"))
