"""Small and large GPTs and mixtures of experts, built from their components, as Megatron's papers and tests have them."""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.components import MLP, Attention, DecoderLayer, Embedding, GatedMLP, Head, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.components.moe import Experts, MoE, SoftmaxRouter
from memcalc.specs.model import Axis, Block, ModelSpec


def gpt(*, hidden: int, layers: int, heads: int, vocab: int = 51200, positions: int = 2048, dropout: float = 0.0, tied: bool = True) -> ModelSpec:
    """A GPT: LayerNorm, multi-head attention and GELU, all with biases, learned positions."""
    h, f, dim = Axis("hidden_size", hidden), Axis("intermediate_size", 4 * hidden), hidden // heads
    attention = Attention(
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=dim,
        q=Linear("query", h, h, bias=True, split="column"),
        k=Linear("key", h, h, bias=True, split="column"),
        v=Linear("value", h, h, bias=True, split="column"),
        o=Linear("dense", h, h, bias=True, split="row"),
        dropout=dropout,
    )
    mlp = MLP(Linear("h_to_4h", h, f, bias=True, split="column"), Linear("4h_to_h", f, h, bias=True, split="row"))
    v = Axis("vocab_size", vocab)
    blocks = (
        Block("embedding", Embedding(v, h, positions=positions, tied=tied, dropout=dropout), role="embedding"),
        Block("layers", DecoderLayer(LayerNorm(h), attention, LayerNorm(h), mlp, dropout=dropout), layers),
        Block("norm", LayerNorm(h), role="norm"),
        Block("head", Head(Linear("head", h, v, split="column"), tied=tied), role="head"),
    )
    return ModelSpec("gpt", "gpt", blocks, hidden, vocab, layers, heads, heads, dim, tied=tied)


def mixture(
    *,
    hidden: int = 2048,
    heads: int = 16,
    kv_heads: int = 8,
    head_dim: int = 128,
    experts: int = 8,
    width: int = 5440,
    top_k: int = 2,
    vocab: int = 32000,
    pattern: Sequence[int] = (1, 1, 1, 1),
    dense_width: int = 0,
    shared: int = 0,
    tied: bool = False,
    rotary: bool = True,
) -> ModelSpec:
    """Pre-norm layers; those marked in the pattern have experts, the others a network of their own."""
    h, v = Axis("hidden_size", hidden), Axis("vocab_size", vocab)
    q, kv = Axis("heads * head_dim", heads * head_dim), Axis("kv_heads * head_dim", kv_heads * head_dim)
    attention = Attention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        q=Linear("q_proj", h, q, split="column"),
        k=Linear("k_proj", h, kv, split="column"),
        v=Linear("v_proj", h, kv, split="column"),
        o=Linear("o_proj", q, h, split="row"),
        rotary=Rotary(head_dim) if rotary else None,
    )

    def network(size: int) -> GatedMLP:
        f = Axis("intermediate_size", size)
        return GatedMLP(Linear("gate_proj", h, f, split="column"), Linear("up_proj", h, f, split="column"), Linear("down_proj", f, h, split="row"))

    count = Axis("num_experts", experts)
    moe = MoE(
        gate=SoftmaxRouter("gate", h, count, top_k, normalise=True),
        experts=Experts(count, h, Axis("moe_intermediate_size", width)),
        shared=network(shared) if shared else None,
    )
    norm = RMSNorm(h)
    sparse = DecoderLayer(norm, attention, norm, moe)
    dense = DecoderLayer(norm, attention, norm, network(dense_width or width))
    blocks = (
        Block("embed_tokens", Embedding(v, h, rotary=Rotary(head_dim) if rotary else None, tied=tied), role="embedding"),
        *(Block("layers", sparse if marked else dense) for marked in pattern),
        Block("norm", norm, role="norm"),
        Block("lm_head", Head(Linear("lm_head", h, v, split="column"), tied=tied), role="head"),
    )
    return ModelSpec("mixture", "mixtral", blocks, hidden, vocab, len(pattern), heads, kv_heads, head_dim, tied=tied)
