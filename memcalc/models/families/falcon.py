"""Falcon: attention and network in parallel; one KV head for all (7B), one for each group (40B, 180B, 11B), or ALiBi positions (RW).

Source: transformers, models/falcon/modeling_falcon.py.
"""

from __future__ import annotations

from memcalc.components import MLP, Alibi, DecoderLayer, Embedding, FalconAttention, Head, LayerNorm, Linear, ParallelLayer, Rotary, SeparateBiasLinear
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("falcon", "RefinedWebModel", "RefinedWeb")
ARCHITECTURES = {"FalconForCausalLM": "falcon", "RWForCausalLM": "falcon"}


def spec(config: Config) -> ModelSpec:
    """Linear layers add their biases, where they have some, in a step of its own.

    Raises:
        ModelError: the file does not say which of the three it is.
    """
    hidden, heads = config.int("hidden_size", "n_embed"), config.int("num_attention_heads", "n_head")
    grouped = config.bool("new_decoder_architecture", default=config.model_type == "RefinedWeb")
    shared = grouped or (config.bool("multi_query", default=True) if config.has("model_type") else config.bool("multi_query"))
    kv_heads = config.int("num_kv_heads", "n_head_kv", default=heads) if grouped else 1 if shared else heads
    sizes = text.axes(
        hidden=hidden,
        intermediate=config.optional_int("ffn_hidden_size", default=None) or 4 * hidden,
        vocab=config.int("vocab_size"),
        layers=config.int("num_hidden_layers", "n_layer"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )
    alibi, rotary, norm = config.bool("alibi", default=False), Rotary(sizes.head_dim), LayerNorm(sizes.hidden)
    parallel = config.bool("parallel_attn", default=True) or grouped
    attention, mlp, dropout = attention_of(config, sizes, grouped=grouped, alibi=alibi), network(config, sizes), config.float("hidden_dropout", default=0.0)
    layer: ParallelLayer | DecoderLayer
    if parallel:
        norms = config.optional_int("num_ln_in_parallel_attn", default=None) or (2 if grouped else 1)
        layer = ParallelLayer(norm, attention, mlp, mlp_layernorm=norm if grouped and norms == 2 else None, dropout=dropout, returns_probabilities=True)
    else:
        layer = DecoderLayer(norm, attention, norm, mlp, dropout=dropout, returns_probabilities=True)
    tied = config.bool("tie_word_embeddings", default=True)
    return text.language_model(
        config,
        sizes,
        (Block("h", layer, sizes.num_layers),),
        embedding=Embedding(
            sizes.vocab,
            sizes.hidden,
            rotary=rotary,
            tied=tied,
            alibi=Alibi(heads, "mask") if alibi else None,
            always_masked=True,
        ),
        norm=norm,
        head=Head(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied),
        names=("word_embeddings", "ln_f", "lm_head"),
    )


def attention_of(config: Config, sizes: decoder.Sizes, *, grouped: bool, alibi: bool) -> FalconAttention:
    """Falcon's attention."""
    bias = config.bool("bias", default=False)
    together = Axis("(num_attention_heads + 2 * num_kv_heads) * head_dim", sizes.queries.size + 2 * sizes.keys.size)
    return FalconAttention(
        sizes.num_heads,
        sizes.num_kv_heads,
        sizes.head_dim,
        SeparateBiasLinear("query_key_value", sizes.hidden, together, bias, "column"),
        None,
        None,
        SeparateBiasLinear("dense", sizes.queries, sizes.hidden, bias, "row"),
        rotary=Rotary(sizes.head_dim),
        grouped=grouped,
        alibi=alibi,
        dropout=config.float("attention_dropout", default=0.0),
    )


def network(config: Config, sizes: decoder.Sizes) -> MLP:
    """Falcon's network."""
    bias = config.bool("bias", default=False)
    return MLP(
        up=SeparateBiasLinear("dense_h_to_4h", sizes.hidden, sizes.intermediate, bias, "column"),
        down=SeparateBiasLinear("dense_4h_to_h", sizes.intermediate, sizes.hidden, bias, "row"),
        activation=config.str("activation", default="gelu"),
    )
