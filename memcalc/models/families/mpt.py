"""MPT: ALiBi positions, one fused projection, LayerNorm without biases.

Source: transformers, models/mpt/modeling_mpt.py.
"""

from __future__ import annotations

from memcalc.components import MLP, Alibi, DecoderLayer, Embedding, LayerNorm, Linear, MptAttention
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("mpt",)
ARCHITECTURES = {"MptForCausalLM": "mpt", "MPTForCausalLM": "mpt"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers of multi-head attention and a network of two linear layers; transformers' code has it four times as wide always."""
    nested = config.get("attn_config")
    clamped = isinstance(nested, dict) and bool(nested.get("clip_qkv"))
    hidden, heads = config.int("d_model", "hidden_size"), config.int("n_heads", "num_attention_heads")
    sizes = text.axes(
        hidden=hidden,
        intermediate=4 * hidden,
        vocab=config.int("vocab_size"),
        layers=config.int("n_layers", "num_hidden_layers"),
        heads=heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )
    norm, width = LayerNorm(sizes.hidden, bias=False), sizes.hidden
    attention = MptAttention(
        heads,
        heads,
        sizes.head_dim,
        Linear("Wqkv", width, Axis("3 * hidden_size", 3 * hidden), split="column"),
        None,
        None,
        Linear("out_proj", width, width, split="row"),
        clamped=clamped,
    )
    mlp = MLP(Linear("up_proj", width, sizes.intermediate, split="column"), Linear("down_proj", sizes.intermediate, width, split="row"), "gelu")
    tied, length = config.bool("tie_word_embeddings", default=True), config.int("max_seq_len", default=2048)
    return text.language_model(
        config,
        sizes,
        (Block("blocks", DecoderLayer(norm, attention, norm, mlp, returns_probabilities=True), sizes.num_layers),),
        embedding=Embedding(sizes.vocab, width, tied=tied, alibi=Alibi(heads, "table", length)),
        norm=norm,
        names=("wte", "norm_f", "lm_head"),
        attentions=text.EAGER_ONLY,
        max_positions=("max_seq_len",),
    )
