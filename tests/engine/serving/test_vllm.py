"""vLLM's budget: its own rule, rows that were read on H100, what it refuses, keys that change it."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate, Serving
from memcalc.errors import InputError, ShardingError
from memcalc.specs.read import read_run

GIB = 2**30


def serve(model: str, **keys: Any) -> Estimate:
    return estimate(read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h100-80g", **keys}))


def pool(model: str, **keys: Any) -> Serving:
    found = serve(model, **keys).serving
    assert found is not None
    return found


def weights(answer: Estimate) -> int:
    return answer.instant("load").allocated_bytes


# ---------------------------------------------------------------------- read on H100 (79.18 GiB visible): llm-d-planner, vLLM 0.11, util as given
ROWS = [
    (("gpt-oss-20b", 1, None), (0.9, 13.47, 50.28)),
    (("gpt-oss-120b", 1, None), (0.95, 64.38, 3.33)),
    (("llama-3.1-8b", 1, None), (0.9, 14.99, 51.38)),
    (("llama-3.3-70b", 2, "fp8"), (0.9, 33.88, 32.0)),
    (("qwen3-0.6b", 1, None), (0.9, 1.12, 64.45)),
    (("qwen3-32b", 1, None), (0.9, 61.03, 4.45)),
]
"""Model, tp, quantization, share, GiB of weights and of cache. gpt-oss-120b is printed with 0.9, at which its figures do not add up; with 0.95 they do."""


@pytest.mark.parametrize(("engine", "figures"), ROWS)
def test_weights_within_1_per_cent_and_cache_within_3(engine: tuple[str, int, str | None], figures: tuple[float, float, float]) -> None:
    """The constant parts are vLLM's, torch's and aiconfigurator's, none is fitted to these rows."""
    (model, tp, quantization), (share, loaded, cache) = engine, figures
    keys = {"tp": tp, "gpus": tp, "quantization": quantization, "max_model_len": 16_000}
    answer = serve(model, gpu="79.18GiB", gpu_memory_utilization=share, **keys)
    assert weights(answer) / GIB == pytest.approx(loaded, rel=0.01)
    assert answer.serving is not None
    assert answer.serving.kv_cache_bytes / GIB == pytest.approx(cache, rel=0.03)


def test_mistral_small_with_its_tower() -> None:
    """44.76 GiB of weights. The row's activations, 2.12 GiB, leave the sampler room for 450 sequences at most, so the run had fewer than its card's 1,024."""
    answer = serve("mistral-small-3.1-24b", gpu="79.18GiB", gpu_memory_utilization=0.95, max_model_len=16_000, max_num_seqs=256)
    assert weights(answer) / GIB == pytest.approx(44.76, rel=0.01)
    assert answer.serving is not None
    assert answer.serving.kv_cache_bytes / GIB == pytest.approx(28.20, rel=0.03)
    assert answer.serving.token_bytes == 163_840


def test_70b_in_fp8_leaves_one_h100_no_cache() -> None:
    """67.72 GiB were loaded, and 1.44 were missing."""
    answer = serve("llama-3.3-70b", gpu="79.18GiB", gpu_memory_utilization=0.9, max_model_len=16_000, quantization="fp8")
    assert weights(answer) / GIB == pytest.approx(67.72, rel=0.01)
    assert answer.verdict is not None
    assert not answer.verdict.fits


# ---------------------------------------------------------------------- its rule
def test_what_is_asked_of_the_card_is_all_used() -> None:
    """Weights, profiling run, graphs and cache are the share that was asked for, up to a block."""
    answer = serve("llama-3.1-8b", gpu_memory_utilization=0.8)
    assert answer.serving is not None
    kernels = next(t.bytes for t in answer.most_loaded.device if t.path == "device/kernels")
    rest = answer.serving.budget_bytes - answer.instant("prefill").allocated_bytes - kernels
    assert 0 <= rest < 16 * answer.serving.token_bytes


def test_defaults_follow_the_card() -> None:
    assert [line for line in serve("llama-3.1-8b", gpu="h200-141g").assumptions if "max_num" in line] == [
        "max_num_batched_tokens 8,192: what vllm serve takes on this card",
        "max_num_seqs 1,024: likewise",
    ]
    assert any(line.startswith("max_num_seqs 256") for line in serve("llama-3.2-1b", gpu="a100-80g").assumptions)


def test_fewer_sequences_leave_more_cache() -> None:
    """The sampler of the profiling run is smaller."""
    assert pool("llama-3.1-8b", max_num_seqs=64).kv_cache_bytes > pool("llama-3.1-8b", max_num_seqs=1024).kv_cache_bytes


def test_no_graphs_leave_more_cache() -> None:
    assert pool("llama-3.1-8b", enforce_eager=True).kv_cache_bytes > pool("llama-3.1-8b").kv_cache_bytes


def test_fp8_caches_hold_twice_the_tokens() -> None:
    plain, fp8 = pool("llama-3.1-8b"), pool("llama-3.1-8b", kv_cache_dtype="fp8")
    assert fp8.token_bytes * 2 == plain.token_bytes
    assert fp8.kv_tokens == pytest.approx(2 * plain.kv_tokens, abs=32)


@pytest.mark.parametrize(("tp", "part"), [(2, 2), (8, 8), (16, 8)])
def test_heads_are_shared_until_each_rank_has_one(tp: int, part: int) -> None:
    assert pool("llama-3.1-70b", tp=tp, gpus=tp).token_bytes == 327_680 // part


def test_a_latent_stands_on_every_rank() -> None:
    assert pool("deepseek-v3", tp=16, gpus=16, quantization="fp8").token_bytes == 70_272


def test_blocks_may_be_said() -> None:
    """378 blocks of 16 tokens, of 163,840 bytes each on two ranks."""
    found = pool("llama-3-70b", tp=2, gpus=2, num_gpu_blocks_override=378, max_model_len=4096)
    assert (found.kv_tokens, found.kv_cache_bytes) == (6048, 6048 * 163_840)


@pytest.mark.parametrize(("gib", "tp", "blocks"), [(68.89, 1, 376_231), (68.09, 2, 743_724)])
def test_blocks_of_a_given_pool(gib: float, tp: int, blocks: int) -> None:
    """Qwen2.5-0.5B, as llm-d-planner counts them."""
    found = pool("qwen2.5-0.5b", tp=tp, gpus=tp, kv_cache_memory_bytes=int(gib * GIB))
    assert found.kv_tokens == 16 * blocks


def test_pipeline_stages_hold_their_own_layers() -> None:
    """Each of two stages of Llama-3.1-8B has 16 layers' cache; the stage with the fewest sequences says how many there are."""
    answer = serve("llama-3.1-8b", pp=2, gpus=2)
    assert len(answer.ranks) == 2
    assert answer.serving is not None
    assert answer.serving.token_bytes == 131_072 // 2


def test_weights_on_the_host_leave_their_room_to_the_cache() -> None:
    more = pool("llama-3.1-8b", cpu_offload_gb=4).kv_cache_bytes - pool("llama-3.1-8b").kv_cache_bytes
    assert more == pytest.approx(4 * GIB, abs=16 * 131_072)


def test_weights_on_the_host_are_never_on_the_card() -> None:
    """Mixtral in bf16 over two cards of 40 GB has 43.5 GiB a card, of which vLLM puts 10 on the host as it makes the layers (maybe_offload_to_cpu)."""
    keys = {"tp": 2, "gpus": 2, "gpu": "a100-40g", "max_num_seqs": 64, "max_model_len": 32_768}
    away = serve("mixtral-8x7b", **{**keys, "cpu_offload_gb": 10})
    assert away.instant("load").allocated_bytes / GIB == pytest.approx(33.5, abs=0.05)
    assert [answer.verdict is not None and answer.verdict.fits for answer in (away, serve("mixtral-8x7b", **keys))] == [True, False]


def test_checking_guesses_takes_what_no_profile_foresees() -> None:
    """256 sequences with four guesses each, and the token that follows: 1280 rows of 128,256 logits in fp32."""
    keys = {"speculative_model": "llama-3.2-1b", "max_num_seqs": 256}
    notes = [serve("llama-3.1-8b", **keys, num_speculative_tokens=n).notes for n in (4, None)]
    assert ["1,280 tokens in fp32, 0.61 GiB" in " ".join(said) for said in notes] == [True, False]


def test_adapters_take_their_room_before_any_is_there() -> None:
    """Llama-3.1-8B: rank 16 on seven projections, in and out, of 32 layers."""
    keys = {"enable_lora": True, "max_loras": 4}
    sizes = 4 * 4096 + 2 * (4096 + 14_336) + (14_336 + 4096) + 2 * (4096 + 1024)
    term = next(t for t in serve("llama-3.1-8b", **keys).instant("decode").terms if t.path == "adapters/room")
    assert term.bytes == 4 * 16 * sizes * 2 * 32


def test_whole_experts_weigh_what_slices_do() -> None:
    """128 experts over eight ranks: sixteen each, or an eighth of every one."""
    whole, slices = (weights(serve("qwen3-30b-a3b", tp=4, gpus=4, enable_expert_parallel=on)) for on in (True, False))
    assert whole == slices


# ---------------------------------------------------------------------- refusals
def test_one_sequence_must_fit() -> None:
    """OpenRLHF's report: 378 blocks hold 6,048 tokens, 8,192 were wanted; the longest is found."""
    answer = serve("llama-3-70b", tp=2, gpus=2, num_gpu_blocks_override=378, max_model_len=8192)
    assert answer.verdict is not None
    assert not answer.verdict.fits
    assert "max seq len (8192)" in answer.verdict.refusal
    assert answer.serving is not None
    assert answer.serving.largest_model_len == 6048


def test_the_longest_that_fits_starts_and_one_more_does_not() -> None:
    keys = {"gpu": "24GiB", "max_num_seqs": 16}
    longest = pool("llama-3.1-8b", **keys).largest_model_len
    for length, fits in ((longest, True), (longest + 16, False)):
        verdict = serve("llama-3.1-8b", **keys, max_model_len=length).verdict
        assert verdict is not None
        assert verdict.fits is fits


def test_a_share_that_is_not_free_is_refused() -> None:
    verdict = serve("llama-3.2-1b", gpu_memory_utilization=1.0).verdict
    assert verdict is not None
    assert "desired GPU memory utilization" in verdict.refusal


def test_no_room_for_cache_is_refused() -> None:
    verdict = serve("llama-3.1-70b").verdict
    assert verdict is not None
    assert not verdict.fits


def test_it_serves_and_takes_a_card() -> None:
    with pytest.raises(InputError, match="task: inference"):
        serve("llama-3.1-8b", task="train")
    with pytest.raises(InputError, match="--gpu"):
        estimate(read_run("llama-3.1-8b", task="inference", code="vllm"))
    with pytest.raises(ShardingError, match="attention heads"):
        serve("llama-3.1-8b", tp=3, gpus=3)


def test_another_engines_keys_are_listed() -> None:
    assert serve("llama-3.1-8b", mem_fraction_static=0.8).ignored == ("serving.mem_fraction_static: vllm has no such key",)


def test_what_remembers_nothing_has_no_cache() -> None:
    with pytest.raises(InputError, match="remembers nothing"):
        serve("bert-base-cased")


def test_more_than_the_models_own_length_is_noted() -> None:
    assert any("only where it is told" in note for note in serve("gpt2", max_model_len=2048).notes)


@pytest.mark.parametrize("code", ["vllm", "sglang", "trtllm"])
def test_a_model_that_says_no_length_is_served_to_2048(code: str) -> None:
    """Mamba: states are all that it keeps, as large at any length."""
    serving = estimate(read_run("mamba-2.8b", task="inference", code=code, gpu="h100-80g")).serving
    assert serving is not None
    assert (serving.max_model_len, serving.token_bytes) == (2048, 0)


def test_what_a_tower_runs_is_not_counted() -> None:
    """Its weights are."""
    assert any(note.startswith("images:") for note in serve("qwen2.5-vl-7b").notes)
    assert not any(note.startswith("images:") for note in serve("qwen2.5-7b").notes)
