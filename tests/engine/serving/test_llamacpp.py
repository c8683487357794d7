"""llama.cpp: published file sizes, its logs' buffers, files, cards and host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError, ShardingError
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.limits import limits
from tests.models.gguf_files import LLAMA, llama_tensors, write

MIB = 2**20


def serve(model: str = "llama-3-8b", **keys: Any) -> Estimate:
    return estimate(read_run(model, **{"task": "inference", "code": "llamacpp", "seq_len": 8192, **keys}))


def answer_run(**keys: Any) -> Run:
    return read_run("llama-3-8b", task="inference", code="llamacpp", gpu="h100-80g", seq_len=8192, quantization="q4_0", **keys)


def sizes(answer: Estimate, name: str = "prefill") -> dict[str, int]:
    return {term.path: term.bytes for term in answer.instant(name).terms}


@pytest.mark.parametrize(("name", "gib"), [("q4_0", 4.33), ("Q4_K_M", 4.58), ("q5_k_m", 5.33), ("q6_k", 6.14), ("q8_0", 7.95), ("f16", 14.96)])
def test_llama_3_8b_files(name: str, gib: float) -> None:
    """As llama.cpp prints them; the token table is on the host."""
    answer = serve(quantization=name)
    assert (answer.instant("load").allocated_bytes + answer.host_bytes) / 2**30 == pytest.approx(gib, abs=0.006)


def test_the_table_on_the_host_is_what_a_log_says() -> None:
    """Llama 3 8B in Q4_K: "CPU buffer size = 281.81 MiB"."""
    assert round(serve(quantization="q4_k_m").host_bytes / MIB, 2) == 281.81


@pytest.mark.parametrize(
    ("model", "keys", "mib"),
    [
        ("llama-3-8b", {}, 258.5),
        ("llama-2-7b", {"seq_len": 4096}, 70.5),
        ("llama-2-7b", {"seq_len": 4096, "flash_attn": False}, 296.0),
        ("qwen2.5-7b", {}, 304.0),
    ],
)
def test_compute_buffers_of_logs(model: str, keys: dict[str, Any], mib: float) -> None:
    assert sizes(serve(model, **keys))["activations/compute buffer"] / MIB == mib


def test_the_cache_is_made_in_full_and_padded() -> None:
    """Two sequences of 8,100 tokens become two of 8,192; 131,072 bytes a token."""
    assert sizes(serve(micro_batch=2, seq_len=8100))["kv_cache/pool"] == 2 * 8192 * 131_072


def test_gemma_3_at_128k_as_gpustack_should_have_said() -> None:
    """Ten of 62 layers at 128,000 tokens, the others at 1,536: 7.94 GiB, and some 26 GB with the weights."""
    answer = serve("gemma-3-27b", quantization="q4_k_m", max_model_len=128_000, cache_type_k="q8_0")
    cache = 16 * 128 * (1.0625 + 2) * (10 * 128_000 + 52 * 1536)
    assert sizes(answer)["kv_cache/pool"] == cache
    assert answer.most_loaded.allocated_bytes / 1e9 == pytest.approx(26, abs=1)


def test_layers_beyond_n_gpu_layers_are_on_the_host_with_their_cache() -> None:
    some, every, none = (serve(quantization="q8_0", n_gpu_layers=n) for n in (17, 33, 0))
    assert sizes(some)["kv_cache/pool"] == sizes(every)["kv_cache/pool"] // 2
    whole = every.instant("decode").allocated_bytes + every.host_bytes
    assert some.instant("decode").allocated_bytes + some.host_bytes == whole == none.host_bytes
    assert none.instant("load").allocated_bytes == 0


def test_cards_take_layers_in_turn_and_the_output_counts_as_one() -> None:
    """33 places over two cards: 17 layers, and 15 with the output."""
    answer = serve(gpu="rtx4090-24g", gpus=2, seq_len=4096)
    caches = sorted(t.bytes for r in answer.ranks for t in r.instants[-1].terms if t.path == "kv_cache/pool")
    assert caches == [15 * 4096 * 4096, 17 * 4096 * 4096]


def test_the_longest_context_of_a_card() -> None:
    keys = {"quantization": "q4_k_m", "gpu": "5.5GiB"}
    longest = serve(**keys, seq_len=256).serving
    assert longest is not None
    for length, fits in ((longest.largest_model_len, True), (longest.largest_model_len + 256, False)):
        verdict = serve(**keys, seq_len=length).verdict
        assert verdict is not None
        assert verdict.fits is fits


def test_a_file_is_served_by_llama_cpp_with_its_own_types(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", LLAMA, llama_tensors("q5_k"))
    answer = estimate(read_run(path, task="inference", seq_len=1024))
    assert answer.serving is not None
    assert answer.serving.engine == "llamacpp"
    assert sizes(answer)["weights/output"] == 5000 * 2 * 210 + 4 * 512
    assert answer.host_bytes == 5000 * 2 * 176


def test_a_tied_table_is_on_the_card_too(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", LLAMA, llama_tensors("q5_k", tied=True))
    assert sizes(estimate(read_run(path, task="inference", seq_len=1024)))["weights/output"] == 5000 * 2 * 176 + 4 * 512


def test_what_cannot_be() -> None:
    with pytest.raises(ShardingError, match="--gpus"):
        serve(tp=2, gpus=2)
    with pytest.raises(InputError, match="on 3 cards"):
        serve(gpus=3, n_gpu_layers=2)


def test_with_all_layers_on_the_host_no_card_limits_sequences() -> None:
    answer = serve(quantization="q4_0", micro_batch=3, n_gpu_layers=0, gpu="h100-80g")
    assert answer.serving is not None
    assert (answer.serving.sequence_bytes, answer.serving.max_concurrency) == (0, 3.0)
    assert answer.host_bytes > 3 * 8192 * 131_072
    with pytest.raises(InputError, match="stays on the host"):
        limits(answer_run(n_gpu_layers=0))


def test_a_card_with_the_output_only_does_not_say_how_many_sequences_there_are() -> None:
    """Two of the 33 on two cards: a layer, and the output."""
    one, two = (serve(quantization="q4_0", n_gpu_layers=2, gpus=gpus, gpu="h100-80g") for gpus in (1, 2))
    assert one.serving is not None
    assert two.serving is not None
    assert one.serving.sequence_bytes == two.serving.sequence_bytes > 0
    assert two.serving.max_concurrency >= one.serving.max_concurrency
