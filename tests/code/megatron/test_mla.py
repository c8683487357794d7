"""Multi-head latent attention under Megatron."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memcalc.components import DecoderLayer, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.components.mla import Indexer, LatentAttention
from memcalc.engine.estimate import estimate_job, walk_ranks
from memcalc.engine.step import num_bytes
from memcalc.errors import InputError
from memcalc.specs.model import Axis, ModelSpec
from tests.engine.toy import job, llama

HEADS, NOPE, ROPE, V, Q_RANK, KV_RANK, HIDDEN, LAYERS, TOKENS = 8, 32, 16, 24, 96, 64, 256, 8, 128


def latent(indexer: Indexer | None = None) -> ModelSpec:
    """The toy model with latent attention in its layers."""
    model, h = llama(), Axis("hidden_size", HIDDEN)
    q_rank, kv_rank = Axis("q_lora_rank", Q_RANK), Axis("kv_lora_rank", KV_RANK)
    attention = LatentAttention(
        num_heads=HEADS,
        nope_dim=NOPE,
        rope_dim=ROPE,
        v_dim=V,
        q_proj=None,
        q_a_proj=Linear("q_a_proj", h, q_rank),
        q_a_layernorm=RMSNorm(q_rank),
        q_b_proj=Linear("q_b_proj", q_rank, Axis("queries", HEADS * (NOPE + ROPE)), split="column"),
        kv_a_proj=Linear("kv_a_proj", h, Axis("kv_lora_rank + rope", KV_RANK + ROPE)),
        kv_a_layernorm=RMSNorm(kv_rank),
        kv_b_proj=Linear("kv_b_proj", kv_rank, Axis("keys and values", HEADS * (NOPE + V)), split="column"),
        o_proj=Linear("o_proj", Axis("values", HEADS * V), h, split="row"),
        rotary=Rotary(ROPE),
        indexer=indexer,
    )
    blocks = [replace(b, module=replace(b.module, self_attn=attention)) if isinstance(b.module, DecoderLayer) else b for b in model.blocks]
    return replace(model, blocks=tuple(blocks))


def saved(**keys: Any) -> dict[str, int]:
    """Bytes that attention keeps of a token in a layer, by tensor."""
    instant = estimate_job(job(latent(), code="megatron", seq_len=TOKENS, **keys)).instant("forward_end")
    found = {t.path.removeprefix("activations/layers/self_attn/"): t.bytes for t in instant.terms if "self_attn/" in t.path}
    return {path: n // (LAYERS * TOKENS) for path, n in found.items() if not path.endswith("random state")}


def of_heads(tp: int = 1) -> dict[str, int]:
    """What is cut by heads."""
    n = HEADS // tp
    return {
        "query": 2 * n * (NOPE + ROPE), "key": 2 * n * (NOPE + ROPE), "value": 2 * n * V,
        "core_attention/attention output": 2 * n * V, "core_attention/log-sum-exp": 4 * n,
    }  # fmt: skip


LATENTS = {
    "query latent": 2 * Q_RANK, "q_a_layernorm/output": 2 * Q_RANK, "q_a_layernorm/reciprocal root mean square": 4,
    "key and value latent": 2 * (KV_RANK + ROPE), "kv_a_layernorm/output": 2 * KV_RANK, "kv_a_layernorm/reciprocal root mean square": 4,
}  # fmt: skip


def test_latents_and_what_is_made_of_them_are_kept() -> None:
    """Both latents before and after their norms; queries, keys and values of every head."""
    assert saved() == LATENTS | of_heads()


def test_tensor_parallelism_cuts_heads_and_not_latents() -> None:
    """Every rank makes the whole latents, unless the sequence is cut as well."""
    assert saved(tp=4) == LATENTS | of_heads(4)
    cut = saved(tp=4, sp=True)
    assert cut["query latent"] == 2 * Q_RANK // 4
    assert {name: cut[name] for name in of_heads()} == of_heads(4)


def test_recomputing_the_up_projection_keeps_its_inputs_alone() -> None:
    """Queries, keys and values go when attention has run, and are there again in backward."""
    left = saved(recompute="selective", recompute_modules="mla_up_proj")
    assert left == {"query latent": 2 * Q_RANK, "key and value latent": 2 * (KV_RANK + ROPE)} | {
        name: n for name, n in of_heads().items() if name.startswith("core_attention/")
    }


@pytest.mark.parametrize("keys", [{}, {"tp": 2, "sp": True}, {"recompute": "selective", "recompute_modules": "mla_up_proj"}, {"recompute": "full"}], ids=str)
def test_a_step_leaves_nothing_behind(keys: dict[str, Any]) -> None:
    """But the losses of the tokens, which the caller holds, in either way of running."""
    (walked,) = walk_ranks(job(latent(), code="megatron", **keys))
    left = {p: n for p, n in walked.walk.by_path.items() if n and p.startswith("activations/")}
    assert left == {"activations/lm_head/losses": num_bytes(walked.plan.parts[-1].profile.out)}


def test_sparse_attention_has_no_program() -> None:
    """An error that says where there is one."""
    h = Axis("hidden_size", HIDDEN)
    small = Axis("index_head_dim", 32)
    index = Indexer(
        num_heads=4,
        head_dim=32,
        rope_dim=ROPE,
        top_k=16,
        wq_b=Linear("wq_b", Axis("q_lora_rank", Q_RANK), Axis("index", 128)),
        wk=Linear("wk", h, small),
        k_norm=LayerNorm(small),
        weights_proj=Linear("weights_proj", h, Axis("index_heads", 4)),
    )
    with pytest.raises(InputError, match="no program for sparse latent attention"):
        estimate_job(job(latent(index), code="megatron"))
