"""Public reports of fine-tuning that ran out of memory, and seven ways to run one model: what a right answer is, from the facts that they hold.

axolotl issue 1554 (Mixtral, QLoRA, ZeRO-2), unsloth issue 465 (Llama 3 8B in 4 bits on a T4), LLaMA-Factory issue 10367 (Qwen 3.5 27B,
LoRA, ZeRO-3), transformers issue 25313 (Pythia 6.9B).
"""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.specs.run import Run
from memcalc.units import GiB
from memcalc.whatif.compare import compare


def run(model: str, **keys: Any) -> Estimate:
    """The answer to a run."""
    return estimate(Run.model_validate({"model": model, **keys}))


def weights(answer: Estimate) -> float:
    """GiB of weights at the start."""
    return sum(t.bytes for t in answer.instant("start").terms if t.path.startswith("weights/")) / GiB


def fits(answer: Estimate) -> bool:
    """What the verdict says."""
    assert answer.verdict is not None
    return answer.verdict.fits


def term(answer: Estimate, instant: str, path: str) -> int:
    """Bytes of one term."""
    return next(t.bytes for t in answer.instant(instant).terms if t.path == path)


# ---------------------------------------------------------------------- axolotl 1554
def mixtral(quantization: str, **keys: Any) -> Estimate:
    """QLoRA of the reported configuration."""
    lora = {"r": 32, "target_modules": ["q_proj", "v_proj"]}
    sharding = {"engine": "deepspeed", "zero": 2, "dp": 4}
    keys = {"sharding": sharding, "hardware": {"gpu": "a10-24g"}, **keys}
    return run("mixtral-8x7b", quantization=quantization, lora=lora, seq_len=1024, recompute="full", **keys)


@pytest.mark.parametrize(("quantization", "least"), [("nf4", 24.8), ("nf4-dq", 22.8)])
def test_stage_2_holds_all_eight_experts_on_every_rank(quantization: str, least: float) -> None:
    """46.7 billion weights in 4 bits, not 13: it dies while loading on cards of 24 GB."""
    answer = mixtral(quantization)
    assert weights(answer) == pytest.approx(least, abs=0.15)
    assert not fits(answer)


def test_fsdp_would_hold_a_quarter_of_them() -> None:
    """Values filed under the dtype of the other weights are spread: 6.2 GiB on each of four cards, which it fits."""
    fsdp = {"sharding": {"engine": "fsdp1", "dp": 4}, "bnb_4bit_quant_storage": "bfloat16"}
    answer = mixtral("nf4-dq", **fsdp)
    assert weights(answer) == pytest.approx(6.2, abs=0.1)
    assert fits(answer)


# ---------------------------------------------------------------------- unsloth 465
def llama_on_t4(seq_len: int, micro_batch: int, **keys: Any) -> Estimate:
    """4-bit Llama 3 8B with adapters in fp16, as unsloth loads it: nothing is cast to fp32."""
    keys = {"quantization": "nf4", "kbit_upcast": False, "dtype": "float16", "lora": {"r": 16}, "recompute": "full", **keys}
    return run("llama-3.1-8b", seq_len=seq_len, micro_batch=micro_batch, hardware={"gpu": "t4"}, **keys)


def test_logits_in_fp32_are_the_failed_request() -> None:
    """9.47 GiB are those of two samples of 9910 tokens."""
    answer = llama_on_t4(9910, 2)
    assert term(answer, "forward_peak", "activations/lm_head/logits in fp32") / GiB == pytest.approx(9.47, abs=0.01)
    assert weights(answer) == pytest.approx(5.7, abs=0.15)
    assert not fits(answer)


def test_one_long_sample_does_not_fit_either() -> None:
    """8.6 GiB of one tensor, beside weights and fp16 logits, on 14.75 GiB."""
    assert not fits(llama_on_t4(18000, 1))


def test_a_fused_loss_makes_room() -> None:
    """Without all logits the peak is gigabytes lower."""
    full, fused = (llama_on_t4(9910, 1, loss=loss).most_loaded.allocated_bytes for loss in ("cross_entropy", "fused_linear"))
    assert full - fused > 8 * 9910 * 128256


# ---------------------------------------------------------------------- LLaMA-Factory 10367
def test_stage_3_shards_weights_and_not_logits() -> None:
    """Qwen 3.5 27B with adapters over three cards of 48 GB: a sample of 8192 tokens over 248,320 words fails in the loss, a shorter one does not."""
    sharding = {"engine": "deepspeed", "zero": 3, "dp": 3}
    lora = {"r": 64, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "out_proj"], "dtype": "bfloat16"}
    found = {n: run("qwen3.5-27b", seq_len=n, lora=lora, sharding=sharding, recompute="full", hardware={"gpu": "l40s"}) for n in (1024, 8192)}
    assert term(found[8192], "forward_peak", "activations/lm_head/logits in fp32") == 8192 * 248320 * 4
    assert not fits(found[8192])
    assert fits(found[1024])
    fused = run("qwen3.5-27b", seq_len=8192, loss="fused_linear", lora=lora, sharding=sharding, recompute="full")
    assert fused.most_loaded.allocated_bytes < 0.85 * 44.5 * GiB


# ---------------------------------------------------------------------- transformers 25313
def test_training_of_pythia_itself_fits() -> None:
    """Eight cards of 80 GB: what ran out was evaluation, which kept the logits of 15,011 samples."""
    answer = run("pythia-6.9b", seq_len=512, sharding={"engine": "fsdp1", "dp": 8}, autocast="bfloat16", dtype="float32", hardware={"gpu": "a100-80g"})
    assert fits(answer)


# ---------------------------------------------------------------------- seven ways
WAYS: dict[str, dict[str, Any]] = {
    "full AMP": {"dtype": "float32", "autocast": "bfloat16"},
    "full bf16": {},
    "8-bit Adam": {"optimizer": "adamw_8bit"},
    "GaLore": {"optimizer": "galore_adamw"},
    "LOMO": {"optimizer": "lomo"},
    "LoRA": {"lora": {"r": 16}},
    "QLoRA": {"lora": {"r": 16}, "quantization": "nf4", "kbit_upcast": False},
}
"""From the most to the least, for Llama 3.1 8B and one checkpointed sample of 1024 tokens."""


def test_seven_ways_come_in_the_order_that_their_terms_explain() -> None:
    """In one comparison: half the bytes, then most of the moments, the rest of them, all gradients; with adapters states of the base, then its bytes."""
    comparison = compare(WAYS, model="llama-3.1-8b", seq_len=1024, recompute="full")
    found = dict(zip(comparison.names, comparison.estimates, strict=True))
    peaks = [found[way].most_loaded.allocated_bytes for way in WAYS]
    assert peaks == sorted(peaks, reverse=True)
    n = found["full bf16"].model.total_params

    def at(way: str, instant: str, kind: str) -> int:
        return sum(t.bytes for t in found[way].instant(instant).terms if t.path.startswith(f"{kind}/"))

    assert at("full AMP", "optimizer_step", "optimizer") == pytest.approx(12 * n, rel=1e-3)
    assert at("full bf16", "optimizer_step", "optimizer") == pytest.approx(6 * n, rel=1e-3)
    assert at("8-bit Adam", "start", "optimizer") == pytest.approx(2.03 * n + 6 * 128256 * 4096, rel=0.01)
    assert at("GaLore", "start", "optimizer") < 0.6 * n
    assert at("LOMO", "start", "optimizer") == 0
    assert at("LOMO", "backward_peak", "gradients") < 0.3 * n
    assert at("LoRA", "start", "weights") == pytest.approx(2 * n, rel=0.02)
    assert at("QLoRA", "start", "weights") < 0.4 * at("LoRA", "start", "weights")


# ---------------------------------------------------------------------- LLaMA-Factory 4559, 5545; unsloth 2366
def test_a_packed_70b_base_is_whole_on_every_card() -> None:
    """Llama 3 70B in GPTQ with adapters over four A10G, by DDP, ran out of memory: 37 GiB of weights on each, by the checkpoint's name."""
    answer = run("TechxGenus/Meta-Llama-3-70B-Instruct-GPTQ", lora={}, seq_len=1024, recompute="full", sharding={"dp": 4}, hardware={"gpu": "a10g"})
    assert weights(answer) == pytest.approx(37, abs=1.5)
    assert not fits(answer)


def test_a_context_of_52_thousand_tokens_does_not_fit_one_card() -> None:
    """Llama 3.1 8B in 4 bits with adapters on an H100 of 80 GB: logits of 51,974 tokens over 128,256 words."""
    keys = {"quantization": "nf4", "kbit_upcast": False, "lora": {"r": 8}, "recompute": "full", "hardware": {"gpu": "h100"}}
    assert not fits(run("llama-3.1-8b", seq_len=51974, **keys))
    assert fits(run("llama-3.1-8b", seq_len=32768, **keys))


def test_gemma_3_12b_in_8_bits_takes_some_15_thousand_tokens_of_an_h100() -> None:
    """It ran with 14,000 and never with 15,000, under kernels that keep less."""
    keys = {"quantization": "int8", "kbit_upcast": False, "lora": {"r": 8}, "recompute": "full", "hardware": {"gpu": "h100"}, "optimizer": "adamw_8bit"}
    assert fits(run("gemma-3-12b", seq_len=12288, **keys))
    assert not fits(run("gemma-3-12b", seq_len=20480, **keys))
