"""BART, mBART, M2M-100 and NLLB, Pegasus, Blenderbot and Marian: an encoder and a decoder.

Source: transformers, models/bart/modeling_bart.py, models/mbart/modeling_mbart.py, models/m2m_100/modeling_m2m_100.py,
models/pegasus/modeling_pegasus.py, models/blenderbot/modeling_blenderbot.py and models/marian/modeling_marian.py. Layers are not dropped at random.
"""

from __future__ import annotations

from memcalc.components import LayerNorm, Linear
from memcalc.components.bart import BartAttention, BartEmbedding, BartHead, BartLayer, Places
from memcalc.components.t5 import Stack
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("bart", "mbart", "m2m_100", "pegasus", "blenderbot", "marian")
ARCHITECTURES = {
    "BartForConditionalGeneration": "bart",
    "MBartForConditionalGeneration": "mbart",
    "M2M100ForConditionalGeneration": "m2m_100",
    "PegasusForConditionalGeneration": "pegasus",
    "BlenderbotForConditionalGeneration": "blenderbot",
    "MarianMTModel": "marian",
}

PRE_NORM = ("mbart", "m2m_100", "pegasus", "blenderbot")
"""Norms stand before the branches, and another one at the end of each stack."""

PLACES: dict[str, Places] = {"m2m_100": "buffer", "pegasus": "given", "blenderbot": "shared", "marian": "given"}
"""Positions that are not BART's; embeddings are not normalised then."""

RESERVED = 2
"""Rows of learned position tables that stand for no token (BartLearnedPositionalEmbedding)."""

BF16 = 2
"""Width of buffers: the dtype that models are loaded in."""

STACKS: tuple[Stack, ...] = ("encoder", "decoder")


def spec(config: Config) -> ModelSpec:
    """Both stacks, one after the other; the decoder is taken to be as long as the encoder, and the head uses the table.

    Raises:
        ModelError: the file says that it does not, or that the stacks have tables of their own.
    """
    for key in ("tie_word_embeddings", "share_encoder_decoder_embeddings"):
        if not config.bool(key, default=True):
            raise config.error(f"{key} false is not known to memcalc for this family, whose tables and head are one")
    hidden, vocab = Axis("d_model", config.int("d_model")), Axis("vocab_size", config.int("vocab_size"))
    num_layers = {name: config.int(f"{name}_layers") for name in STACKS}
    heads, norm = config.int("decoder_attention_heads"), LayerNorm(hidden)
    ends = {name: (Block(f"{name}_end", norm, role="norm"),) if config.model_type in PRE_NORM else () for name in STACKS}
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=(
            Block("shared", front(config, "encoder", vocab, hidden), role="embedding"),
            Block("encoder", layer(config, "encoder", hidden), num_layers["encoder"]),
            *ends["encoder"],
            Block("decoder_begin", front(config, "decoder", vocab, hidden), role="embedding"),
            Block("decoder", layer(config, "decoder", hidden), num_layers["decoder"]),
            *ends["decoder"],
            Block("lm_head", BartHead(Linear("lm_head", hidden, vocab, split="column"), tied=True), role="head"),
        ),
        hidden_size=hidden.size,
        vocab_size=vocab.size,
        num_layers=sum(num_layers.values()),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=text.whole_heads(config, hidden.size, heads),
        max_position_embeddings=config.int("max_position_embeddings"),
        tied=True,
        buffer_bytes=buffers(config, vocab, hidden),
    )


def buffers(config: Config, vocab: Axis, hidden: Axis) -> int:
    """A constant for each logit; M2M-100 has none, and tables of positions for both stacks."""
    if config.model_type == "m2m_100":
        return len(STACKS) * (config.int("max_position_embeddings") + RESERVED) * int(hidden.size) * BF16
    return int(vocab.size) * BF16


def front(config: Config, stack: Stack, vocab: Axis, hidden: Axis) -> BartEmbedding:
    """The front of a stack."""
    places = PLACES.get(config.model_type, "own")
    rows = config.int("max_position_embeddings") + (RESERVED if places in ("own", "buffer") else 0)
    norm = LayerNorm(hidden) if places == "own" else None
    return BartEmbedding(vocab, hidden, stack, rows, places=places, norm=norm, dropout=config.float("dropout"))


def layer(config: Config, stack: Stack, hidden: Axis) -> BartLayer:
    """One layer of the encoder, or of the decoder with attention to the encoder."""
    inner, norm, is_decoder = Axis(f"{stack}_ffn_dim", config.int(f"{stack}_ffn_dim")), LayerNorm(hidden), stack == "decoder"
    return BartLayer(
        self_attn=attention(config, stack, "decoder" if is_decoder else "encoder", hidden),
        self_attn_layer_norm=norm,
        encoder_attn=attention(config, stack, "cross", hidden) if is_decoder else None,
        encoder_attn_layer_norm=norm if is_decoder else None,
        fc1=Linear("fc1", hidden, inner, bias=True, split="column"),
        fc2=Linear("fc2", inner, hidden, bias=True, split="row"),
        final_layer_norm=norm,
        activation=config.str("activation_function"),
        pre_norm=config.model_type in PRE_NORM,
        dropout=config.float("dropout"),
        activation_dropout=config.float("activation_dropout"),
    )


def attention(config: Config, stack: Stack, kind: str, hidden: Axis) -> BartAttention:
    """Heads that share the hidden size; all four projections have biases."""
    heads = config.int(f"{stack}_attention_heads")
    q, k, v = (Linear(name, hidden, hidden, bias=True, split="column") for name in ("q_proj", "k_proj", "v_proj"))
    o, dropout = Linear("out_proj", hidden, hidden, bias=True, split="row"), config.float("attention_dropout")
    return BartAttention(heads, text.whole_heads(config, hidden.size, heads), kind, q, k, v, o, dropout=dropout)  # type: ignore[arg-type]
