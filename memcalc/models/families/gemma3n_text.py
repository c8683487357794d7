"""Gemma 3n's text model: several streams side by side (AltUp), low-rank branches (LAuReL), inputs for each layer.

Source: transformers, models/gemma3n/modeling_gemma3n.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, Head, Linear, Rotary
from memcalc.components.altup import AltUp, AltUpLayer, JoinStreams, Laurel, SparseGateMLP, SpreadStreams
from memcalc.components.gemma4 import Gemma4Attention, Gemma4Norm
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _layer_inputs as layer_inputs
from memcalc.models.families import _moe as moe
from memcalc.models.families import _text as text
from memcalc.models.families.gemma4_text import last_of_kind, shared_layers
from memcalc.specs.model import Axis, Block, ModelSpec

MODEL_TYPES = ("gemma3n_text",)
ARCHITECTURES = {"Gemma3nForCausalLM": "gemma3n_text"}

SCALES, SCALE_BYTES = 4, 2
"""Scales of both tables, of the projection and of the sum are buffers of one number in the model's dtype, as is one in each layer."""

SIZES, SPARSITY = "intermediate_size", "activation_sparsity_pattern"


def spec(config: Config) -> ModelSpec:
    """The last layers use keys and values of earlier ones; the first have sparse gates."""
    widths, sparse = each_layer(config, SIZES), each_layer(config, SPARSITY)
    sizes = decoder.read_sizes(config, head_dim_follows=False, intermediate=widths[0])
    hidden, count, norm = sizes.hidden, sizes.num_layers, Gemma4Norm(sizes.hidden)
    activation, streams = config.str("hidden_activation"), Axis("altup_num_inputs", config.int("altup_num_inputs"))
    kinds, reused = text.layer_windows(config, count, pattern=None, window=config.int("sliding_window")), shared_layers(config, count)
    altup, laurel = streams_of(config, hidden, streams), low_rank(config, hidden, norm)
    own = layer_inputs.share(config, hidden, norm, activation)
    if own is None:
        raise config.error(f"{layer_inputs.SMALL} is 0; every layer of this family has inputs of its own")

    def layer(kind: tuple[int | None, bool, bool, int, bool]) -> AltUpLayer:
        window, reuses, stores, width, is_sparse = kind
        network = moe.swiglu(hidden, Axis(SIZES, width), activation)
        mixer = attention(config, sizes, window=window, reuses=reuses)
        mlp = SparseGateMLP(network.gate, network.up, network.down, activation) if is_sparse else network
        return AltUpLayer(replace(mixer, stores=stores, feeds=stores and any(reused)), mlp, norm, altup, laurel, own)

    each = zip(kinds, reused, last_of_kind(kinds, reused), widths, (bool(share) for share in sparse), strict=True)
    others = (Linear("", hidden, hidden),) * (streams.size - 1)
    rotaries, tied = (Rotary(sizes.head_dim), Rotary(sizes.head_dim, name="local")), config.bool("tie_word_embeddings")
    tables = layer_inputs.tables(config, hidden, count, Gemma4Norm, in_place=True)
    whole = text.language_model(
        config,
        sizes,
        (*decoder.layer_blocks(each, layer), Block("", JoinStreams(others), role="norm")),
        embedding=Embedding(
            sizes.vocab, hidden, rotary=rotaries[0], local_rotary=rotaries[1], scaled=True, tied=tied, inputs=tables, streams=SpreadStreams(others)
        ),
        norm=norm,
        head=Head(Linear("lm_head", hidden, sizes.vocab, split="column"), tied=tied, softcap=config.optional_float("final_logit_softcapping")),
    )
    return moe.with_buffers(whole, SCALE_BYTES * (SCALES + count))


def each_layer(config: Config, key: str) -> tuple[int, ...]:
    """What a list has for each layer, or one number for all.

    Raises:
        ModelError: it has not as many as there are layers.
    """
    count, value = config.int("num_hidden_layers"), config.get(key)
    if not isinstance(value, list):
        return (config.int(key),) * count if key == SIZES else (0,) * count
    if len(value) != count:
        raise config.error(f"{key} has {len(value)} numbers for {count} layers")
    return config.ints(key, minimum=1) if key == SIZES else tuple(int(share > 0) for share in value)


def attention(config: Config, sizes: decoder.Sizes, *, window: int | None, reuses: bool) -> Gemma4Attention:
    """Grouped-query attention with norms of each head; layers that share keys and values have queries alone."""
    plain, bias = decoder.attention(sizes), config.bool("attention_bias", default=False)
    head = Axis("head_dim", sizes.head_dim)
    q, k, v, o = (None if linear is None else replace(linear, bias=bias) for linear in (plain.q, plain.k, plain.v, plain.o))
    assert q is not None
    assert o is not None
    return Gemma4Attention(
        sizes.num_heads,
        sizes.num_kv_heads,
        sizes.head_dim,
        q=q,
        k=None if reuses else k,
        v=None if reuses else v,
        o=o,
        q_norm=Gemma4Norm(head),
        k_norm=None if reuses else Gemma4Norm(head),
        rotary=Rotary(sizes.head_dim, name="" if window is None else "local"),
        window=window,
        v_norm=None if reuses else Gemma4Norm(head, "unscaled"),
    )


def streams_of(config: Config, hidden: Axis, streams: Axis) -> AltUp:
    """How the streams of a layer are predicted from each other and corrected."""
    square = Axis("altup_num_inputs²", streams.size**2)
    return AltUp(
        streams,
        modality_router=Linear("modality_router", hidden, streams),
        router_norm=Gemma4Norm(hidden),
        prediction_coefs=Linear("prediction_coefs", streams, square),
        correction_coefs=Linear("correction_coefs", streams, streams),
        scaled=config.bool("altup_correct_scale"),
    )


def low_rank(config: Config, hidden: Axis, norm: Gemma4Norm) -> Laurel:
    """The branch beside attention."""
    rank = Axis("laurel_rank", config.int("laurel_rank"))
    return Laurel(Linear("linear_left", hidden, rank), Linear("linear_right", rank, hidden), norm)
