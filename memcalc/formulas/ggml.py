"""ggml: how many bytes a tensor of each type takes, what llama.cpp's quantizer stores in which type, and what its buffers hold.

Sizes are ints or integer arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memcalc.errors import UnknownNameError
from memcalc.units import ceil_div


class GgmlType(NamedTuple):
    """One storage type.

    Attributes:
        number: in GGUF files.
        block: values that are stored together.
        block_bytes: what they take with their scales.
    """

    number: int
    block: int
    block_bytes: int


TYPES: dict[str, GgmlType] = {
    "f32": GgmlType(0, 1, 4), "f16": GgmlType(1, 1, 2), "bf16": GgmlType(30, 1, 2), "f64": GgmlType(28, 1, 8),
    "i8": GgmlType(24, 1, 1), "i16": GgmlType(25, 1, 2), "i32": GgmlType(26, 1, 4), "i64": GgmlType(27, 1, 8),
    "q4_0": GgmlType(2, 32, 18), "q4_1": GgmlType(3, 32, 20), "q5_0": GgmlType(6, 32, 22), "q5_1": GgmlType(7, 32, 24),
    "q8_0": GgmlType(8, 32, 34), "q8_1": GgmlType(9, 32, 36),
    "q2_k": GgmlType(10, 256, 84), "q3_k": GgmlType(11, 256, 110), "q4_k": GgmlType(12, 256, 144), "q5_k": GgmlType(13, 256, 176),
    "q6_k": GgmlType(14, 256, 210), "q8_k": GgmlType(15, 256, 292),
    "iq1_s": GgmlType(19, 256, 50), "iq1_m": GgmlType(29, 256, 56), "iq2_xxs": GgmlType(16, 256, 66), "iq2_xs": GgmlType(17, 256, 74),
    "iq2_s": GgmlType(22, 256, 82), "iq3_xxs": GgmlType(18, 256, 98), "iq3_s": GgmlType(21, 256, 110), "iq4_nl": GgmlType(20, 32, 18),
    "iq4_xs": GgmlType(23, 256, 136), "tq1_0": GgmlType(34, 256, 54), "tq2_0": GgmlType(35, 256, 66), "mxfp4": GgmlType(39, 32, 17),
    "nvfp4": GgmlType(40, 64, 36),
}  # fmt: skip
"""By name. Source: ggml/src/ggml-common.h, the ``block_…`` structs; ggml/include/ggml.h, ``enum ggml_type``."""

BY_NUMBER = {kind.number: name for name, kind in TYPES.items()}


class Mixture(NamedTuple):
    """What llama.cpp's quantizer stores in which type.

    Attributes:
        most: of most matrices.
        some: of values and of what comes down, in the layers that get more bits.
        output: of the output projection, and of the token table where it is that, too.
    """

    most: str
    some: str
    output: str


MIXTURES: dict[str, Mixture] = {
    "f16": Mixture("f16", "f16", "f16"), "bf16": Mixture("bf16", "bf16", "bf16"), "q8_0": Mixture("q8_0", "q8_0", "q8_0"),
    "q4_0": Mixture("q4_0", "q4_0", "q6_k"), "q5_0": Mixture("q5_0", "q5_0", "q6_k"), "q4_k_m": Mixture("q4_k", "q6_k", "q6_k"),
    "q5_k_m": Mixture("q5_k", "q6_k", "q6_k"), "q6_k": Mixture("q6_k", "q6_k", "q6_k"),
}  # fmt: skip
"""By the name of the file type. Source: src/llama-quant.cpp, ``llama_tensor_get_type``."""

FALLBACK = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""For rows that are no multiple of 256. Source: the same place, ``tensor_type_fallback``."""


def mixture(name: str) -> Mixture:
    """A file type by name.

    Source: that of `MIXTURES`.

    Raises:
        UnknownNameError: it is not among those whose mixture is known.

    >>> mixture("Q4_K_M").output
    'q6_k'
    """
    found = MIXTURES.get(name.lower().replace("-", "_"))
    if found is None:
        raise UnknownNameError("quantization of llama.cpp", name, MIXTURES, where="quantization")
    return found


def row_bytes(columns: int, kind: str) -> int:
    """One row of a matrix; rows that no block divides are stored in another type.

    Source: ggml/src/ggml.c, ``ggml_row_size``; `FALLBACK`.

    >>> row_bytes(4096, "q4_k"), row_bytes(896, "q4_k")
    (2304, 616)
    """
    if columns % TYPES[kind].block:
        kind = FALLBACK.get(kind, "f16")
    if columns % TYPES[kind].block:
        kind = "f16"
    return columns // TYPES[kind].block * TYPES[kind].block_bytes


def gets_more_bits(layer: int, num_layers: int) -> bool:
    """Whether a layer's values and what comes down are stored in the better type of a ``…_K_M`` mixture.

    Source: src/llama-quant.cpp, ``use_more_bits``.

    >>> [i for i in range(16) if gets_more_bits(i, 16)]
    [0, 1, 4, 7, 10, 13, 14, 15]
    """
    return layer < num_layers // 8 or layer >= 7 * num_layers // 8 or (layer - num_layers // 8) % 3 == 2


def cells(length: Any, *, window: int | None, ubatch: Any, pad: int = 256) -> Any:
    """Tokens that a layer of the cache has room for: all, or those of the window and of one micro-batch, padded.

    Source: src/llama-context.cpp, ``n_ctx_seq``; src/llama-kv-cache-iswa.cpp, ``size_swa``.

    >>> cells(8100, window=None, ubatch=512), cells(128000, window=1024, ubatch=512)
    (8192, 1536)
    """
    whole = ceil_div(length, pad) * pad
    if window is None:
        return whole
    part = ceil_div(window + ubatch, pad) * pad
    return whole - (whole - part) * (whole > part)


def compute_bytes(*, ubatch: Any, vocab_size: int, hidden_size: int, inner: int, scores: Any) -> Any:
    """The compute buffer, which the graph allocator makes for the widest moment of a micro-batch, all of it fp32.

    That is the logits of all of its tokens beside the last hidden states, or a layer's gate and up beside residual and input, or, without flash
    attention, the scores of all heads with the mask, beside queries, keys, values and the residual.

    Source: src/llama-context.cpp, ``graph_reserve`` (as many outputs as tokens); src/llama-graph.cpp, ``build_ffn``, ``build_attn_mha``. Logs of
    Llama-3-8B print 258.50 MiB; of Llama-2-7B with 4096 tokens and no flash attention 296.00.

    Args:
        ubatch: tokens of a micro-batch.
        vocab_size, hidden_size: of the model.
        inner: the widest network's intermediate size, of all experts of a token.
        scores: elements of each token's scores and mask: (heads + 1) * tokens of the cache, 0 with flash attention.

    >>> compute_bytes(ubatch=512, vocab_size=128256, hidden_size=4096, inner=14336, scores=0) / 2**20
    258.5
    >>> compute_bytes(ubatch=512, vocab_size=32000, hidden_size=4096, inner=11008, scores=33 * 4096) / 2**20
    296.0
    """
    widest = max(vocab_size + hidden_size, 2 * inner + 2 * hidden_size)
    attention = (scores + 4 * hidden_size) * (scores > 0)
    return 4 * ubatch * (widest + (attention - widest) * (attention > widest))
