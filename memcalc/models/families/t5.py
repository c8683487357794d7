"""T5, T5 1.1, Flan-T5, mT5 and UMT5: an encoder and a decoder; UMT5 has a table of distances in every layer.

Source: transformers, models/t5/modeling_t5.py. Where a file says ``tie_word_embeddings: false`` its checkpoint has a head of its own, which
loading keeps, though a model that is built from the file alone ties it.
"""

from __future__ import annotations

from memcalc.components import Linear
from memcalc.components.t5 import T5MLP, T5Attention, T5Embedding, T5FinalNorm, T5Head, T5Layer, T5Norm
from memcalc.models.config import Config
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("t5", "mt5", "umt5")
ARCHITECTURES = {
    "T5ForConditionalGeneration": "t5",
    "T5WithLMHeadModel": "t5",
    "MT5ForConditionalGeneration": "mt5",
    "UMT5ForConditionalGeneration": "umt5",
}


def spec(config: Config) -> ModelSpec:
    """Both stacks, one after the other; the decoder is taken to be as long as the encoder."""
    hidden, vocab = Axis("d_model", config.int("d_model")), Axis("vocab_size", config.int("vocab_size"))
    heads, head_dim, dropout = config.int("num_heads"), config.int("d_kv"), config.float("dropout_rate")
    num_encoder = config.int("num_layers")
    num_decoder = config.optional_int("num_decoder_layers", default=None) or num_encoder
    tied, norm = config.bool("tie_word_embeddings", default=True), T5FinalNorm(T5Norm(hidden), dropout)
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=(
            Block("shared", T5Embedding(vocab, hidden, "encoder", dropout=dropout), role="embedding"),
            *stack(config, "encoder", num_encoder, hidden),
            Block("encoder_end", norm, role="norm"),
            Block("decoder_begin", T5Embedding(vocab, hidden, "decoder", first=not tied, dropout=dropout), role="embedding"),
            *stack(config, "decoder", num_decoder, hidden),
            Block("decoder_end", norm, role="norm"),
            Block("lm_head", T5Head(Linear("lm_head", hidden, vocab, split="column"), tied=tied, scaled=tied and config.model_type != "mt5"), role="head"),
        ),
        hidden_size=hidden.size,
        vocab_size=vocab.size,
        num_layers=num_encoder + num_decoder,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=head_dim,
        max_position_embeddings=config.optional_int("n_positions", default=None),
        tied=tied,
        attentions=("eager", "sdpa"),
    )


def stack(config: Config, name: str, num_layers: int, hidden: Axis) -> tuple[Block, ...]:
    """The layers of a stack; the first has the table of distances, or all have (UMT5)."""
    buckets = config.int("relative_attention_num_buckets")
    if config.model_type == "umt5":
        return (Block(name, layer(config, name, hidden, buckets), num_layers),)
    first = Block(name, layer(config, name, hidden, buckets))
    return (first,) if num_layers == 1 else (first, Block(name, layer(config, name, hidden, 0), num_layers - 1))


def layer(config: Config, name: str, hidden: Axis, buckets: int) -> T5Layer:
    """One layer of the encoder, or of the decoder with attention to the encoder."""
    norm, dropout = T5Norm(hidden), config.float("dropout_rate")
    is_decoder = name == "decoder"
    return T5Layer(
        layer_norm=norm,
        attention=attention(config, "decoder" if is_decoder else "encoder", hidden, buckets),
        cross_norm=norm if is_decoder else None,
        cross_attention=attention(config, "cross", hidden, 0) if is_decoder else None,
        ff_norm=norm,
        ff=network(config, hidden),
        dropout=dropout,
    )


def attention(config: Config, kind: str, hidden: Axis, buckets: int) -> T5Attention:
    """Heads that are as wide as the file says, whatever the hidden size."""
    heads, head_dim = config.int("num_heads"), config.int("d_kv")
    inner = Axis("num_heads * d_kv", heads * head_dim)
    return T5Attention(
        heads,
        head_dim,
        kind,  # type: ignore[arg-type]
        q=Linear("q", hidden, inner, split="column"),
        k=Linear("k", hidden, inner, split="column"),
        v=Linear("v", hidden, inner, split="column"),
        o=Linear("o", inner, hidden, split="row"),
        buckets=buckets,
        dropout=config.float("dropout_rate"),
        apart=config.model_type == "umt5",
    )


def network(config: Config, hidden: Axis) -> T5MLP:
    """The network that ``feed_forward_proj`` names: an activation, or ``gated-`` and one.

    Raises:
        ModelError: it is neither.
    """
    inner, words = Axis("d_ff", config.int("d_ff")), config.str("feed_forward_proj").split("-")
    if len(words) > 2 or (len(words) == 2 and words[0] != "gated"):
        raise config.error(f"feed_forward_proj is {'-'.join(words)!r}; an activation such as relu, or gated- and one, was expected")
    gated = len(words) == 2
    activation = "gelu_new" if gated and words[1] == "gelu" else words[-1]
    return T5MLP(
        wi=Linear("wi_0" if gated else "wi", hidden, inner, split="column"),
        gate=Linear("wi_1", hidden, inner, split="column") if gated else None,
        wo=Linear("wo", inner, hidden, split="row"),
        activation=activation,
        dropout=config.float("dropout_rate"),
    )
