"""What a sequence leaves in the cache: keys and values, latents, states; in elements, in bytes of a storage type, in blocks.

Sizes are ints or integer arrays; no batch, length or degree is looked at with `if`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from memcalc.errors import UnknownNameError
from memcalc.units import ceil_div


class CacheType(NamedTuple):
    """How values of a cache are stored: groups of equal make.

    Attributes:
        group: values of a group.
        group_bytes: what a group takes with its scales.
        source: where that is from.
    """

    group: int
    group_bytes: int
    source: str


CACHE_TYPES: dict[str, CacheType] = {
    "float32": CacheType(1, 4, "IEEE 754"),
    "bfloat16": CacheType(1, 2, "bfloat16"),
    "float16": CacheType(1, 2, "IEEE 754"),
    "fp8": CacheType(1, 1, "vLLM, cache_dtype fp8: a scale for each layer, beside the weights"),
    "int8": CacheType(1, 1, "TensorRT-LLM, INT8 KV cache: a scale for each layer"),
    "int4": CacheType(64, 36, "transformers, cache_utils.py, QuantizedCache: 4 bits, q_group_size 64 with a 16-bit scale and shift"),
    "int2": CacheType(64, 20, "the same place: 2 bits"),
    "nvfp4": CacheType(16, 9, "NVIDIA, NVFP4: 4 bits, an fp8 scale for 16 values"),
    "q8_0": CacheType(32, 34, "ggml, block_q8_0: 32 bytes and a 16-bit scale"),
    "q5_1": CacheType(32, 24, "ggml, block_q5_1: 20 bytes, a 16-bit scale and minimum"),
    "q5_0": CacheType(32, 22, "ggml, block_q5_0: 20 bytes and a 16-bit scale"),
    "q4_1": CacheType(32, 20, "ggml, block_q4_1: 16 bytes, a 16-bit scale and minimum"),
    "q4_0": CacheType(32, 18, "ggml, block_q4_0: 16 bytes and a 16-bit scale"),
}
"""Storage types of caches by name."""

SHIFT_BYTES = 2 + 2
"""A 16-bit scale and shift of a group."""

ALIASES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}


def _at_least(a: Any, b: Any) -> Any:
    """The larger one, of ints or arrays."""
    return a + (b - a) * (b > a)


def cache_type(name: str) -> CacheType:
    """A storage type by name.

    Source: the one of each type, in `CACHE_TYPES`.

    Raises:
        UnknownNameError: it is not known.

    >>> cache_type("fp8_e4m3").group_bytes
    1
    """
    known = ALIASES.get(name, name)
    if known not in CACHE_TYPES:
        raise UnknownNameError("cache dtype", name, (*CACHE_TYPES, *ALIASES), where="serving.kv_cache_dtype")
    return CACHE_TYPES[known]


def grouped(bits: int, group: int) -> CacheType:
    """Values of a few bits in groups with a 16-bit scale and shift each.

    Source: transformers, cache_utils.py, ``QuantizedLayer``; optimum-quanto, ``quantize_weight``; hqq, ``Quantizer.quantize``, which packs ten
    values of 3 bits into four bytes.

    >>> grouped(4, 64).group_bytes, grouped(2, 64).group_bytes, grouped(3, 64).group_bytes
    (36, 20, 32)
    """
    values = ceil_div(group, 10) * 4 if bits == 3 else ceil_div(group * bits, 8)
    return CacheType(group, values + SHIFT_BYTES, f"{bits} bits, a 16-bit scale and shift for {group} values")


def packed_bytes(elements: Any, kind: CacheType) -> Any:
    """Bytes of so many values of one tensor, whose last group may not be full.

    Source: that of `grouped`.

    >>> packed_bytes(130, grouped(4, 64))
    108
    """
    return ceil_div(elements, kind.group) * kind.group_bytes


def stored_bytes(elements: Any, dtype: str) -> Any:
    """Bytes of so many values of one row in a storage type; a group that is not full takes its whole room.

    Source: that of its type, in `CACHE_TYPES`.

    Args:
        elements: values that are grouped together (of one head, or of one latent).
        dtype: a name of `CACHE_TYPES`.

    >>> stored_bytes(128, "bfloat16"), stored_bytes(128, "q8_0"), stored_bytes(128, "nvfp4")
    (256, 136, 72)
    """
    kind = cache_type(dtype)
    return ceil_div(elements, kind.group) * kind.group_bytes


def local_heads(num_kv_heads: Any, tp: Any) -> Any:
    """KV heads on a rank; where there are more ranks than heads, each head stands on several.

    Source: vLLM, config/model.py, ``get_num_kv_heads``; TensorRT-LLM and SGLang likewise.

    >>> local_heads(8, 4), local_heads(8, 16)
    (2, 1)
    """
    return _at_least(ceil_div(num_kv_heads, tp), 1)


def attention_token_bytes(*, num_kv_heads: Any, key_dim: int, value_dim: int, dtype: str, value_dtype: str | None = None, tp: Any = 1) -> Any:
    """One token's keys and values in one layer: multi-head, grouped-query and multi-query attention differ in `num_kv_heads` only.

    Source: Shazeer 2019 (multi-query), Ainslie et al. 2023 (grouped-query), section 2.

    Args:
        num_kv_heads: of the whole model.
        key_dim, value_dim: of a head.
        dtype: of the keys.
        value_dtype: of the values, where it is another.
        tp: tensor-parallel ranks.

    >>> 80 * attention_token_bytes(num_kv_heads=8, key_dim=128, value_dim=128, dtype="bfloat16")  # Llama-3.1-70B
    327680
    """
    return local_heads(num_kv_heads, tp) * (stored_bytes(key_dim, dtype) + stored_bytes(value_dim, value_dtype or dtype))


def latent_token_bytes(*, latent_dim: int, rope_dim: int, dtype: str, index_bytes: Any = 0) -> Any:
    """One token in one layer of latent attention, where the engine stores the latent: every rank holds all of it.

    Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.2, equation 9; vLLM, ``MLAAttentionSpec``.

    Args:
        latent_dim: of the latent of keys and values.
        rope_dim: of the one rotary key that heads share.
        dtype: of both.
        index_bytes: an indexer's key beside them.

    >>> 61 * latent_token_bytes(latent_dim=512, rope_dim=64, dtype="bfloat16")  # DeepSeek-V3
    70272
    """
    return stored_bytes(latent_dim + rope_dim, dtype) + index_bytes


def expanded_token_bytes(*, num_heads: Any, nope_dim: int, rope_dim: int, value_dim: int, dtype: str, tp: Any = 1) -> Any:
    """One token in one layer of latent attention where keys and values are stored for each head, as multi-head attention does.

    Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.4, table 1 ("MHA").

    Args:
        num_heads: of the whole model.
        nope_dim, rope_dim: the parts of a key.
        value_dim: of a value.
        dtype: of both.
        tp: tensor-parallel ranks.

    >>> 61 * expanded_token_bytes(num_heads=128, nope_dim=128, rope_dim=64, value_dim=128, dtype="bfloat16")
    4997120
    """
    return attention_token_bytes(num_kv_heads=num_heads, key_dim=nope_dim + rope_dim, value_dim=value_dim, dtype=dtype, tp=tp)


def kept_tokens(length: Any, window: int | None) -> Any:
    """Tokens of a sequence that a layer still needs: all, or those in its window.

    Source: Beltagy et al. 2020 (Longformer), section 3.1; transformers, cache_utils.py, ``SlidingWindowLayer`` (one fewer, between tokens).

    >>> kept_tokens(8192, None), kept_tokens(8192, 128), kept_tokens(100, 128)
    (8192, 128, 100)
    """
    return length if window is None else length - _at_least(length - window, 0)


def chunked_tokens(length: Any, chunk: int) -> Any:
    """Tokens that a layer of chunked attention needs: those of the chunk that is being filled, at most all of one.

    Source: Llama 4, ``attention_chunk_size``; vLLM, ``ChunkedLocalAttentionSpec``.

    >>> chunked_tokens(20000, 8192), chunked_tokens(500, 8192)
    (8192, 500)
    """
    return kept_tokens(length, chunk)


def padded_tokens(tokens: Any, block: int) -> Any:
    """Tokens rounded up to whole blocks.

    Source: Kwon et al. 2023 (PagedAttention), section 4.2.

    >>> padded_tokens(1000, 16)
    1008
    """
    return ceil_div(tokens, block) * block


def window_blocks(length: Any, *, window: int, block: int, max_num_batched_tokens: int) -> Any:
    """Blocks of one sequence in a layer with a window: those of the window, of one step's tokens, and one more where it begins inside a block.

    Source: vLLM, v1/kv_cache_interface.py, ``SlidingWindowSpec.max_memory_usage_bytes``.

    >>> window_blocks(131072, window=128, block=16, max_num_batched_tokens=2048)
    137
    """
    return ceil_div(kept_tokens(length, window - 1 + max_num_batched_tokens), block) + 1


def num_blocks(available_bytes: Any, *, block: int, token_bytes: Any) -> Any:
    """Blocks that fit, all layers together.

    Source: vLLM, v1/core/kv_cache_utils.py, ``get_num_blocks``.

    Args:
        available_bytes: for the cache.
        block: tokens of a block.
        token_bytes: of one token in all layers.

    >>> num_blocks(int(68.89 * 2**30), block=16, token_bytes=24 * 2 * 2 * 64 * 2)  # Qwen2.5-0.5B
    376231
    """
    return available_bytes // (block * token_bytes)


def state_bytes(elements: Any, width: int, *, tp: Any = 1) -> Any:
    """A recurrent or convolution state of one layer and sequence, however long that is.

    Source: Gu and Dao 2023 (Mamba), section 3; Dao and Gu 2024 (Mamba-2), section 6.

    Args:
        elements: of the whole layer.
        width: bytes of each.
        tp: tensor-parallel ranks that share its channels.

    >>> state_bytes(128 * 64 * 128, 4, tp=8)
    524288
    """
    return ceil_div(elements, tp) * width


def cross_bytes(*, source_tokens: Any, token_bytes: Any) -> Any:
    """Keys and values of another stack's tokens (an encoder's, an image's) in one layer: made once, and kept.

    Source: Vaswani et al. 2017, section 3.2.3.

    >>> cross_bytes(source_tokens=1500, token_bytes=2 * 20 * 64 * 2)
    7680000
    """
    return source_tokens * token_bytes
