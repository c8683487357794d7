"""Public reports about serving, and what a right answer to them is."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.cache import Policy, layer_caches, sequence_bytes, token_bytes
from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.models.read import read_model
from memcalc.specs.read import read_run

GIB = 2**30


def serve(model: str, **keys: Any) -> Estimate:
    return estimate(read_run(model, **{"task": "inference", "code": "vllm", **keys}))


def fits(answer: Estimate) -> bool:
    assert answer.verdict is not None
    return answer.verdict.fits


def test_cpu_blocks_in_a_log_tell_the_degree() -> None:
    """OpenRLHF 336: 4 GiB of swap were 1,638 blocks of 16 tokens, which Llama-3-70B has on two ranks; its variant, 512 blocks, is a 7B model."""
    llama = layer_caches(read_model("llama-3-70b").blocks)
    assert [tp for tp in (1, 2, 4, 8) if 4 * GIB // (16 * token_bytes(llama, Policy(tp=tp))) == 1638] == [2]
    assert 4 * GIB // (16 * token_bytes(layer_caches(read_model("llama-2-7b").blocks), Policy())) == 512


def test_a_70b_model_on_two_cards_has_no_room_for_8192_tokens() -> None:
    """OpenRLHF 336: 65.7 GiB of weights on each card, 6,048 tokens of cache: refused; 1.25 GiB would do, and four cards do."""
    keys = {"gpu": "a100-80g", "max_model_len": 8192, "gpu_memory_utilization": 0.9}
    answer = serve("llama-3-70b", tp=2, gpus=2, num_gpu_blocks_override=378, **keys)
    assert answer.instant("load").allocated_bytes / GIB == pytest.approx(65.71, rel=0.001)
    assert not fits(answer)
    assert answer.serving is not None
    assert answer.serving.sequence_bytes == 1.25 * GIB
    assert fits(serve("llama-3-70b", tp=4, gpus=4, **keys))


def test_qwen3_32b_in_4_bits_fits_two_16_gb_cards_in_steady_state() -> None:
    """vllm-gfx906 14: 9.0 to 9.2 GiB of weights and 0.5 GiB for 4,000 tokens on each; what failed was the repacking at load."""
    answer = serve("qwen3-32b", quantization="gptq", tp=2, gpus=2, gpu="15.98GiB", gpu_memory_utilization=0.9, max_model_len=4000)
    assert 8.9 < answer.instant("load").allocated_bytes / GIB < 9.2
    assert answer.serving is not None
    assert answer.serving.sequence_bytes / GIB == pytest.approx(0.49, abs=0.01)
    assert fits(answer)


def test_what_is_shown_of_packed_weights_is_the_steady_state() -> None:
    """vllm-gfx906 14: the answer says so, since the failure was at load."""
    answer = serve("qwen3-32b", quantization="gptq", tp=2, gpus=2, gpu="15.98GiB", gpu_memory_utilization=0.9, max_model_len=4000)
    assert any("steady state" in note for note in answer.notes)


def test_gemma_3_by_llama_cpp_at_128k() -> None:
    """gpustack 2101: keys in q8_0, weights in Q4_K_M: 26 to 28 GB with the buffers, not 139; at the 85,000 tokens of the user's 32 GB it is less."""
    keys = {"code": "llamacpp", "quantization": "q4_k_m", "cache_type_k": "q8_0"}
    full, seen = (serve("gemma-3-27b", max_model_len=n, **keys).most_loaded.allocated_bytes / 1e9 for n in (128_000, 85_000))
    assert 22 < seen < full < 28
    assert fits(serve("gemma-3-27b", max_model_len=128_000, gpu="11GiB", gpus=4, **keys))


def test_windows_cut_gemma_3_cache_to_a_sixth() -> None:
    """gpustack 2101: 62 layers at 128,000 tokens are 46.4 GiB, ten of them with 52 windows 7.8."""
    caches = layer_caches(read_model("gemma-3-27b").blocks)
    full, capped = (sequence_bytes(caches, 128_000, Policy("q8_0", "f16", windows=windows)) / GIB for windows in (False, True))
    assert (round(full, 1), round(capped, 1)) == (46.4, 7.8)


def test_all_experts_are_resident() -> None:
    """llmfit 230: a model of 122 billion parameters of which 10 are active does not fit 48 GB in 4 bits."""
    answer = serve("qwen3.5-122b-a10b", quantization="gptq", gpu="48GB", max_model_len=4096)
    assert answer.instant("load").allocated_bytes > 60e9
    assert not fits(answer)
    packed = serve("qwen3.5-122b-a10b", code="llamacpp", quantization="q4_k_m", gpu="48GB", max_model_len=4096)
    assert (packed.instant("load").allocated_bytes + packed.host_bytes) / 1e9 == pytest.approx(72.6, rel=0.03)
    assert not fits(packed)


@pytest.mark.parametrize(("name", "params"), [("gemma-3-4b", 4_300_079_472), ("gemma-3-27b", 27_432_406_640)])
def test_sizes_that_a_nested_config_leaves_out_are_its_classes_own(name: str, params: int) -> None:
    """vllm-fit 31: no silent 4096/32/32/32000."""
    assert read_model(name).num_params == params


def test_a_hybrid_is_not_charged_for_every_layer_and_cards_share_it() -> None:
    """vllm-fit 31: of Qwen3.5-35B-A3B's 40 layers ten hold keys and values, of two heads, which two ranks share."""
    answers = [serve("qwen3.5-35b-a3b", gpu="h200-141g", tp=tp, gpus=tp).serving for tp in (1, 2, 4)]
    assert [found and found.token_bytes for found in answers] == [10 * 2048, 10 * 1024, 10 * 1024]
    assert serve("qwen3.5-35b-a3b", gpu="h200-141g").instant("load").allocated_bytes > 60e9


def test_seven_billion_weights_in_fp32_do_not_fit_22_gb() -> None:
    """vllm 2140: Qwen2 7B with --dtype float on a 2080 Ti of 22 GB."""
    keys = {"gpu": "21.67GiB", "max_model_len": 512, "enforce_eager": True}
    assert not fits(serve("qwen2-7b", dtype="float32", **keys))
    assert fits(serve("qwen2-7b", dtype="float16", **keys))
