"""A GGUF header as a config.json: llama.cpp's names of architectures and sizes, in Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memcalc.errors import InputError
from memcalc.models.gguf import Gguf, read_gguf

SIZES: dict[str, str] = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "max_position_embeddings": "context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}
"""Hugging Face's names, and llama.cpp's behind the architecture's."""

LATENT: dict[str, str] = {
    "q_lora_rank": "attention.q_lora_rank",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "n_shared_experts": "expert_shared_count",
    "n_group": "expert_group_count",
    "topk_group": "expert_group_used_count",
}
"""The same of DeepSeek's latent attention and experts."""

SIGMOID = 2
"""``expert_gating_func`` of DeepSeek-V3 (src/llama-hparams.h, LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID)."""

KEY, VALUE, ROPE = 192, 128, 64
"""Widths of DeepSeek V2's and V3's heads, for files that do not say."""

Facts = dict[str, Any]


def _plain(model_type: str, **more: Any) -> Callable[[Facts, Gguf], Facts]:
    return lambda facts, _: {"model_type": model_type, **facts, **more}


def _llama(facts: Facts, _: Gguf) -> Facts:
    if not facts.get("num_experts"):
        return {"model_type": "llama", **facts}
    return {"model_type": "mixtral", **facts, "num_local_experts": facts["num_experts"]}


def _deepseek(facts: Facts, header: Gguf) -> Facts:
    name = header.metadata["general.architecture"]
    more = {key: header.metadata[f"{name}.{own}"] for key, own in LATENT.items() if f"{name}.{own}" in header.metadata}
    key = header.metadata.get(f"{name}.attention.key_length_mla", facts.get("head_dim", KEY))
    value = header.metadata.get(f"{name}.attention.value_length_mla", header.metadata.get(f"{name}.attention.value_length", VALUE))
    rope = more.get("qk_rope_head_dim", ROPE)
    sigmoid = header.metadata.get(f"{name}.expert_gating_func") == SIGMOID
    facts = {k: v for k, v in facts.items() if k not in ("head_dim", "num_key_value_heads")}
    return {
        "model_type": "deepseek_v3" if sigmoid else "deepseek_v2", **facts, "n_routed_experts": facts.get("num_experts"), **more,
        "num_key_value_heads": facts["num_attention_heads"], "qk_nope_head_dim": key - rope, "v_head_dim": value, "qk_rope_head_dim": rope,
        "q_lora_rank": more.get("q_lora_rank"), "num_nextn_predict_layers": 0,
    }  # fmt: skip


def _gemma3(facts: Facts, _: Gguf) -> Facts:
    return {"model_type": "gemma3_text", **facts, "query_pre_attn_scalar": facts["head_dim"]}


def _gpt_oss(facts: Facts, _: Gguf) -> Facts:
    inner = facts.get("moe_intermediate_size", facts.get("intermediate_size"))
    return {"model_type": "gpt_oss", **facts, "intermediate_size": inner, "num_local_experts": facts.get("num_experts"), "attention_bias": True}


ARCHITECTURES: dict[str, Callable[[Facts, Gguf], Facts]] = {
    "llama": _llama,
    "qwen2": _plain("qwen2"),
    "qwen2moe": _plain("qwen2_moe"),
    "qwen3": _plain("qwen3"),
    "qwen3moe": _plain("qwen3_moe"),
    "gemma": _plain("gemma"),
    "gemma2": _plain("gemma2"),
    "gemma3": _gemma3,
    "phi3": _plain("phi3"),
    "olmo2": _plain("olmo2"),
    "granite": _plain("granite"),
    "command-r": _plain("cohere"),
    "starcoder2": _plain("starcoder2"),
    "deepseek2": _deepseek,
    "gpt-oss": _gpt_oss,
}
"""llama.cpp's names (src/llama-arch.cpp), and what makes a config of each."""


def gguf_config(path: str) -> Facts:
    """What a file says of its model, as a config.json would.

    Raises:
        InputError: it is no such file, or its architecture is not known here.
    """
    header = read_gguf(path)
    name = header.metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"is of llama.cpp's architecture {name!r}; known: {known}; or give the model's config.json, with code: llamacpp", where=path)
    facts: Facts = {key: header.metadata[f"{name}.{own}"] for key, own in SIZES.items() if f"{name}.{own}" in header.metadata}
    facts = {key: max(value) if isinstance(value, list) else value for key, value in facts.items()}
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    if "token_embd.weight" not in shapes:
        raise InputError("has no token_embd.weight: it is no language model, or a part of one", where=path)
    facts |= {"vocab_size": shapes["token_embd.weight"][1], "tie_word_embeddings": "output.weight" not in shapes}
    if "blk.0.attn_q.bias" in shapes and name == "llama":
        facts["attention_bias"] = True
    return ARCHITECTURES[name](facts, header)
