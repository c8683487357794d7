"""Caches read off models: published rates, and what transformers' own code leaves alive on the tape."""

from __future__ import annotations

import json

import pytest

from memcalc.engine.cache import TRANSFORMERS, LayerCache, Policy, growth_bytes, layer_caches, sequence_bytes, token_bytes
from memcalc.engine.estimate import estimate
from memcalc.errors import ShardingError
from memcalc.models.read import read_model
from memcalc.specs.read import read_run


@pytest.mark.parametrize(
    ("name", "each", "growth"),
    [
        ("deepseek-v3", 70_272, 70_272),
        ("deepseek-v2", 69_120, 69_120),
        ("llama-3.1-70b", 327_680, 327_680),
        ("llama-3.1-8b", 131_072, 131_072),
        ("qwen2.5-7b", 57_344, 57_344),
        ("mistral-small-24b", 163_840, 163_840),
        ("gpt-oss-20b", 49_152, 24_576),
        ("gemma-3-27b", 62 * 8192, 10 * 8192),
        ("llama-4-scout", 48 * 4096, 12 * 4096),
        ("qwen3.5-122b-a10b", 12 * 2048, 12 * 2048),
        ("mamba-130m", 0, 0),
        ("bert-base-cased", 0, 0),
    ],
)
def test_rates_per_token(name: str, each: int, growth: int) -> None:
    """While no window is full, and once all are."""
    caches = layer_caches(read_model(name).blocks)
    assert (token_bytes(caches, Policy()), growth_bytes(caches, Policy())) == (each, growth)


@pytest.mark.parametrize(("name", "gib"), [("qwen2.5-0.5b", 0.11444), ("deepseek-v2", 0.64373), ("deepseek-v3", 0.65446)])
def test_ten_thousand_tokens(name: str, gib: float) -> None:
    """As llm-d-planner prints them."""
    assert sequence_bytes(layer_caches(read_model(name).blocks), 10_000, Policy()) / 2**30 == pytest.approx(gib, abs=6e-6)


def test_gpt_oss_full_and_capped() -> None:
    """32 sequences of 8192 tokens, as hf-mem counts them."""
    caches = layer_caches(read_model("gpt-oss-20b").blocks)
    assert 32 * sequence_bytes(caches, 8192, Policy(windows=False)) == 12 * 2**30
    assert round(32 * sequence_bytes(caches, 8192, Policy()) / 2**30, 2) == 6.09


def test_gemma_3_with_keys_in_q8_0_at_128k() -> None:
    """46.4 GiB if every layer is charged in full, 7.8 with the windows (gpustack's report, 128,000 tokens)."""
    caches, types = layer_caches(read_model("gemma-3-27b").blocks), ("q8_0", "f16")
    assert sequence_bytes(caches, 128_000, Policy(*types, windows=False)) / 2**30 == pytest.approx(46.4, rel=0.002)
    assert sequence_bytes(caches, 128_000, Policy(*types)) / 2**30 == pytest.approx(7.79, rel=0.002)


MODELS = (
    "llama-3.2-1b", "deepseek-v2-lite", "deepseek-v3.2", "gemma-3-1b", "gpt-oss-20b", "qwen3.5-27b", "mamba-130m", "nemotron-h-56b", "falcon-7b",
    "falcon-40b", "gpt2", "jamba-1.5-mini",
)  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_transformers_leaves_as_much(name: str) -> None:
    """An independent count: tensors that the programs of transformers' modules leave alive after a prefill."""
    terms = estimate(read_run(name, task="inference", seq_len=64)).instant("decode").terms
    assert sequence_bytes(layer_caches(read_model(name).blocks), 64, TRANSFORMERS) == sum(t.bytes for t in terms if t.path.startswith("kv_cache"))


def test_layers_that_share_heads_take_one_each_beyond_their_number() -> None:
    caches = layer_caches(read_model("llama-3.1-70b").blocks)
    assert token_bytes(caches, Policy(tp=16)) == token_bytes(caches, Policy(tp=8)) == 327_680 // 8


MINIMAX_M2 = {
    "model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8,
    "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8, "vocab_size": 200_064, "max_position_embeddings": 196_608, "rotary_dim": 64,
    "use_qk_norm": True, "tie_word_embeddings": False,
}  # fmt: skip


def test_minimax_m2_at_its_full_length_in_fp8() -> None:
    """As hf-mem publishes it."""
    caches = layer_caches(read_model(json.dumps(MINIMAX_M2)).blocks)
    assert sequence_bytes(caches, 196_608, Policy(dtype="fp8")) == 24_964_497_408


def test_a_hybrid_of_25_layers_with_windows_and_5_without() -> None:
    """aiconfigurator's: 30 * 4,096 bytes a token up to 1,024 tokens, then 5 * 4,096."""
    caches = (LayerCache("attention", 25, 8, 128, 128, 1024), LayerCache("attention", 5, 8, 128, 128))
    sizes = [sequence_bytes(caches, length, Policy()) for length in (1023, 1024, 1025, 9000)]
    assert (sizes[1] - sizes[0], sizes[2] - sizes[1], sizes[3] - sizes[2]) == (30 * 4096, 5 * 4096, 7975 * 5 * 4096)


@pytest.mark.parametrize(("name", "heads", "dim"), [("gpt-neo-1.3b", 16, 128), ("falcon-7b", 1, 64), ("gpt-j-6b", 16, 256), ("gpt2", 12, 64)])
def test_geometries_by_other_names(name: str, heads: int, dim: int) -> None:
    """``num_heads``, ``multi_query``, ``n_head``, ``n_embd``."""
    cache = layer_caches(read_model(name).blocks)[0]
    assert (cache.num_kv_heads, cache.key_dim) == (heads, dim)


def test_tensor_parallel_degrees_of_qwen_05b() -> None:
    """14 heads divide over 1, 2, 7 and 14 ranks, as llm-d-planner lists them; over 7 the engine has no way to share two KV heads."""
    why = {tp: refused(tp) for tp in range(1, 15)}
    assert [tp for tp, reason in why.items() if "attention heads" not in reason] == [1, 2, 7, 14]
    assert [tp for tp, reason in why.items() if not reason] == [1, 2, 14]
    assert "2 KV heads" in why[7]


def refused(tp: int) -> str:
    try:
        estimate(read_run("qwen2.5-0.5b", task="inference", code="vllm", gpu="h100-80g", tp=tp, gpus=tp))
    except ShardingError as error:
        return str(error)
    return ""


def test_a_latent_may_be_expanded() -> None:
    """Where an engine does not store latents: 128 heads of 192 and 128."""
    caches = layer_caches(read_model("deepseek-v3").blocks)
    assert token_bytes(caches, Policy(latent=False)) == 61 * 128 * (192 + 128) * 2


@pytest.mark.parametrize("name", ["bert-base-uncased", "xlm-roberta-base"])
def test_an_encoder_remembers_nothing(name: str) -> None:
    """Every token sees all others: there is no next token to decode."""
    found = estimate(read_run(name, seq_len=128, task="inference"))
    assert not any(term.path.startswith("kv_cache") for instant in found.most_loaded.instants for term in instant.terms)
