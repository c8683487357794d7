"""Random small configurations of the dense text families, as transformers would accept them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

GROUPED = (
    "cohere", "cohere2", "ernie4_5", "exaone4", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "granite", "hunyuan_v1_dense", "nemotron", "olmo", "olmo2",
    "olmo3", "phi", "phi3", "seed_oss", "smollm3", "stablelm", "starcoder2", "arcee", "ministral3", "apertus",
)  # fmt: skip
"""Families whose files name KV heads."""

LEGACY = ("bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt", "persimmon")
"""Those whose heads all have their keys, or share one, under names of their own."""

ENCODERS = ("bert", "deberta-v2", "distilbert", "electra", "modernbert", "mpnet", "roberta")

FAMILIES = (*GROUPED, "helium", *LEGACY, *ENCODERS)

FREE_HEADS = ("ernie4_5", "exaone4", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "hunyuan_v1_dense", "nemotron", "olmo3", "seed_oss")
"""Those whose heads need not share the hidden size."""

PARTIAL = ("glm", "glm4", "nemotron", "persimmon", "phi", "stablelm")
"""Those that may turn a part of each head; `phi3` and `gpt_neox` are left at theirs."""

WINDOWED = ("cohere2", "exaone4", "gemma2", "gemma3_text", "olmo3")
"""Those with windows in some layers."""


@st.composite
def configs(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """A config.json of a small model whose sizes go together.

    Args:
        draw: of hypothesis.
        model_type: one of `FAMILIES`.
    """
    made = (
        grouped(draw, model_type) if model_type in (*GROUPED, "helium") else encoder(draw, model_type) if model_type in ENCODERS else legacy(draw, model_type)
    )
    return {"model_type": model_type, **made}


def sizes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """KV heads, query heads for each, the width of a head, layers."""
    return draw(st.integers(1, 3)), draw(st.integers(1, 3)), 4 * draw(st.integers(1, 6)), draw(st.integers(1, 4))


def grouped(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """One with Llama's names."""
    kv_heads, group, head_dim, layers = sizes(draw)
    heads = kv_heads * group
    hidden = heads * (2 * draw(st.integers(1, 8)) if model_type in FREE_HEADS else head_dim)
    made = {
        "hidden_size": hidden,
        "intermediate_size": draw(st.integers(1, 48)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": draw(st.integers(2, 90)),
        "tie_word_embeddings": draw(st.booleans()),
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    if model_type in (*FREE_HEADS, "helium"):
        made["head_dim"] = head_dim
    if model_type in PARTIAL:
        made["partial_rotary_factor"] = 0.5
    if model_type in WINDOWED:
        made["sliding_window"] = draw(st.integers(2, 40))
        made["layer_types"] = draw(st.lists(st.sampled_from(("sliding_attention", "full_attention")), min_size=layers, max_size=layers))
    return made | options(draw, model_type)


OPTIONS: dict[str, tuple[str, ...]] = {
    "apertus": ("attention_bias",),
    "arcee": ("attention_bias", "mlp_bias"),
    "cohere": ("attention_bias", "use_qk_norm"),
    "ernie4_5": ("use_bias",),
    "gemma": ("attention_bias",),
    "granite": ("attention_bias", "mlp_bias"),
    "nemotron": ("attention_bias", "mlp_bias"),
    "olmo2": ("attention_bias",),
    "phi": ("qk_layernorm",),
    "seed_oss": ("attention_bias", "attention_out_bias", "mlp_bias"),
    "smollm3": ("attention_bias", "mlp_bias"),
    "stablelm": ("use_qkv_bias", "qk_layernorm", "use_parallel_residual"),
    "starcoder2": ("use_bias",),
    "gpt_neox": ("use_parallel_residual", "attention_bias"),
    "opt": ("enable_bias", "do_layer_norm_before"),
    "bloom": ("apply_residual_connection_post_layernorm",),
    "falcon": ("bias", "alibi", "multi_query", "parallel_attn", "new_decoder_architecture"),
    "gpt_bigcode": ("multi_query",),
    "persimmon": ("qk_layernorm",),
    "deberta-v2": ("share_att_key", "position_biased_input"),
    "modernbert": ("attention_bias", "mlp_bias", "norm_bias", "decoder_bias", "classifier_bias"),
}
"""What a file may switch on and off."""


def options(draw: st.DrawFn, model_type: str) -> dict[str, bool]:
    """The switches of a family, anyhow."""
    return {key: draw(st.booleans()) for key in OPTIONS.get(model_type, ())}


def legacy(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """One with names of its own."""
    kv_heads, group, head_dim, layers = sizes(draw)
    heads = 4 * kv_heads if model_type == "codegen" else kv_heads * group
    hidden, wide, vocab, tied = heads * head_dim, draw(st.integers(1, 48)), draw(st.integers(2, 90)), draw(st.booleans())
    ends = {"vocab_size": vocab, "tie_word_embeddings": tied}
    if model_type in ("gpt2", "gpt_bigcode", "gptj", "codegen"):
        made = {"n_embd": hidden, "n_head": heads, "n_layer": layers, "n_positions": 64, "n_inner": wide}
        made |= {"rotary_dim": head_dim // 2} if model_type in ("gptj", "codegen") else {}
    elif model_type == "gpt_neo":
        pattern = [[["global"], layers]]
        made = {"hidden_size": hidden, "num_heads": heads, "num_layers": layers, "attention_types": pattern, "intermediate_size": wide}
        made |= {"max_position_embeddings": 64}
    elif model_type == "bloom":
        made = {"hidden_size": hidden, "n_head": heads, "n_layer": layers}
    elif model_type == "mpt":
        made = {"d_model": hidden, "n_heads": heads, "n_layers": layers, "max_seq_len": 64}
    else:
        made = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers, "max_position_embeddings": 64}
        if model_type == "opt":
            made |= {"ffn_dim": wide, "word_embed_proj_dim": draw(st.sampled_from((hidden, hidden // 2)))}
        elif model_type == "falcon":
            made |= {"num_kv_heads": kv_heads, "ffn_hidden_size": wide}
        else:
            made |= {"intermediate_size": wide} | ({"rotary_pct": 0.5} if model_type == "gpt_neox" else {"partial_rotary_factor": 0.5})
    return {**made, **ends} | options(draw, model_type)


def encoder(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """One that fills in masked tokens."""
    kv_heads, group, head_dim, layers = sizes(draw)
    heads, wide = kv_heads * group, draw(st.integers(1, 48))
    ends = {"vocab_size": draw(st.integers(2, 90)), "tie_word_embeddings": draw(st.booleans()), "max_position_embeddings": 64, "pad_token_id": 0}
    if model_type == "distilbert":
        return {"dim": heads * head_dim, "n_heads": heads, "n_layers": layers, "hidden_dim": wide, **ends}
    made = {"hidden_size": heads * head_dim, "num_attention_heads": heads, "num_hidden_layers": layers, "intermediate_size": wide, **ends}
    if model_type == "mpnet":
        made |= {"max_position_embeddings": 64 + 2}  # rows 0 and 1 of its table are never a token's
    if model_type == "electra":
        made |= {"embedding_size": draw(st.sampled_from((heads * head_dim, 8)))}
    if model_type == "deberta-v2":
        made |= {"relative_attention": True, "norm_rel_ebd": "layer_norm", "position_buckets": draw(st.sampled_from((-1, 8)))}
        made |= {"pos_att_type": draw(st.sampled_from(("c2p|p2c", "c2p", "p2c"))), "type_vocab_size": draw(st.sampled_from((0, 2)))}
    if model_type == "modernbert":
        made |= {"local_attention": 2 * draw(st.integers(1, 30)), "eos_token_id": 1, "bos_token_id": 1, "cls_token_id": 1, "sep_token_id": 1}
    return made | options(draw, model_type)
