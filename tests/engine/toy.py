"""A small Llama-shaped model, built from its components."""

from __future__ import annotations

from typing import Any

from memcalc.components import Attention, DecoderLayer, Embedding, GatedMLP, Head, Linear, RMSNorm, Rotary
from memcalc.engine.resolve import engine_of, mesh_of
from memcalc.specs.job import Job
from memcalc.specs.model import Axis, Block, ModelSpec
from memcalc.specs.read import read_run


def llama(
    *, layers: int = 8, hidden: int = 256, heads: int = 8, kv_heads: int = 4, intermediate: int = 688, vocab: int = 1000, tied: bool = False
) -> ModelSpec:
    """Pre-norm layers of grouped-query attention and SwiGLU."""
    h, i, v, dim = Axis("hidden_size", hidden), Axis("intermediate_size", intermediate), Axis("vocab_size", vocab), hidden // heads
    q, kv = Axis("heads * head_dim", hidden), Axis("kv_heads * head_dim", kv_heads * dim)
    attention = Attention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        q=Linear("q_proj", h, q, split="column"),
        k=Linear("k_proj", h, kv, split="column"),
        v=Linear("v_proj", h, kv, split="column"),
        o=Linear("o_proj", q, h, split="row"),
        rotary=Rotary(dim),
    )
    mlp = GatedMLP(Linear("gate_proj", h, i, split="column"), Linear("up_proj", h, i, split="column"), Linear("down_proj", i, h, split="row"))
    blocks = (
        Block("embed_tokens", Embedding(v, h, rotary=Rotary(dim), tied=tied), role="embedding"),
        Block("layers", DecoderLayer(RMSNorm(h), attention, RMSNorm(h), mlp), layers),
        Block("norm", RMSNorm(h), role="norm"),
        Block("lm_head", Head(Linear("lm_head", h, v, split="column"), tied=tied), role="head"),
    )
    return ModelSpec("toy", "llama", blocks, hidden, vocab, layers, heads, kv_heads, dim, tied=tied)


def job(model: ModelSpec, **keys: Any) -> Job:
    """What a run of this model resolves to, without reading a file."""
    run = read_run({"model": "toy"}, **keys)
    engine, zero = engine_of(run)
    return Job(run, model, mesh_of(run), engine, zero, run.micro_batch, run.seq_len or 128)
