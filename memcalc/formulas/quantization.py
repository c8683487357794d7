"""What a quantised weight is stored in: packed values, scales, zero points, and what else stands beside them.

All counts are of one weight (out_features × in_features); several equal ones (experts) are so many times as much. Sizes are ints or
integer arrays.
"""

from __future__ import annotations

from typing import Any

from memcalc.units import ceil_div

WORD_BITS = 32
"""GPTQ and AWQ pack values into int32."""
CODE_BYTES, NESTED_CODE_BYTES = 16 * 4, 256 * 4
"""The table of a 4-bit data type's values, fp32, and that of the 8-bit type of its scales: each weight has its own."""


def nf4_bytes(numel: Any, *, block: int = 64, double_quant: bool = False, nested_block: int = 256) -> Any:
    """A weight in bitsandbytes' NF4 or FP4: two values a byte, an absolute maximum for each block, a table of the 16 values.

    Maxima are fp32, or with double quantisation a byte each, with fp32 maxima for each `nested_block` of those, their mean and a table of
    256 values: 0.5625 or 0.5159 bytes for each element.

    Source: Dettmers et al. 2023 (QLoRA), section 3; bitsandbytes/functional.py, ``quantize_4bit``, ``QuantState``.

    Args:
        numel: elements of the weight.
        block: elements that share a maximum.
        double_quant: maxima are quantised, too.
        nested_block: maxima that share one of theirs.

    >>> nf4_bytes(4096 * 4096) / 4096**2, round(nf4_bytes(4096 * 4096, double_quant=True) / 4096**2, 4)
    (0.5625038146972656, 0.5159)
    """
    blocks = ceil_div(numel, block)
    packed = ceil_div(numel, 2) + CODE_BYTES
    if not double_quant:
        return packed + 4 * blocks
    return packed + blocks + 4 * ceil_div(blocks, nested_block) + 4 + NESTED_CODE_BYTES


def int8_bytes(rows: Any, columns: Any) -> Any:
    """A weight in bitsandbytes' LLM.int8(): a byte for each element, an fp32 maximum for each output.

    Source: Dettmers et al. 2022 (LLM.int8()), section 3; bitsandbytes/nn/modules.py, ``Int8Params`` (``CB``, ``SCB``).

    Args:
        rows: out_features.
        columns: in_features.

    >>> int8_bytes(4096, 11008)
    45105152
    """
    return rows * columns + 4 * rows


def gptq_bytes(rows: Any, columns: Any, *, bits: int = 4, group: Any = 128, scale_width: int = 2, has_order: bool = True) -> Any:
    """A weight packed by GPTQ: ``qweight``, ``qzeros``, ``scales``, ``g_idx``.

    Values are packed along the inputs and zero points along the outputs, each into int32; every group of inputs has a scale and a zero point
    for each output, and ``g_idx`` says of each input which group it is in.

    Source: Frantar et al. 2023 (GPTQ); gptqmodel/nn_modules/qlinear, ``PackableQuantLinear``.

    Args:
        rows: out_features.
        columns: in_features.
        bits: of a value.
        group: inputs that share a scale; a number not above 0 means all.
        scale_width: bytes of a scale.
        has_order: whether ``g_idx`` is there.

    >>> gptq_bytes(4096, 4096)  # 8388608 + 65536 + 262144 + 16384
    8732672
    """
    size = columns if isinstance(group, int) and group <= 0 else group
    groups = ceil_div(columns, size)
    packed = 4 * ceil_div(columns * bits, WORD_BITS) * rows
    zeros = 4 * groups * ceil_div(rows * bits, WORD_BITS)
    return packed + zeros + scale_width * groups * rows + 4 * columns * has_order


def awq_bytes(rows: Any, columns: Any, *, bits: int = 4, group: Any = 128, scale_width: int = 2, zero_point: bool = True) -> Any:
    """A weight packed by AWQ (its GEMM format): ``qweight``, ``qzeros``, ``scales``; values are packed along the outputs.

    Source: Lin et al. 2024 (AWQ); awq/modules/linear/gemm.py, ``WQLinear_GEMM``.

    Args:
        rows: out_features.
        columns: in_features.
        bits: of a value.
        group: inputs that share a scale; a number not above 0 means all.
        scale_width: bytes of a scale.
        zero_point: whether groups have one.

    >>> awq_bytes(4096, 4096)
    8716288
    """
    size = columns if isinstance(group, int) and group <= 0 else group
    groups, words = ceil_div(columns, size), 4 * ceil_div(rows * bits, WORD_BITS)
    return columns * words + groups * words * zero_point + scale_width * groups * rows


def fp8_block_bytes(rows: Any, columns: Any, *, block: tuple[int, int] = (128, 128), scale_width: int = 4) -> Any:
    """A weight in fp8 with a scale for each block: ``weight``, ``weight_scale_inv``.

    Source: DeepSeek-AI 2024 (DeepSeek-V3), section 3.3.2; transformers/integrations/finegrained_fp8.py, ``FP8Linear``.

    Args:
        rows: out_features.
        columns: in_features.
        block: outputs and inputs that share a scale.
        scale_width: bytes of a scale.

    >>> fp8_block_bytes(7168, 2048) - 7168 * 2048
    3584
    """
    return rows * columns + scale_width * ceil_div(rows, block[0]) * ceil_div(columns, block[1])


def scaled_bytes(rows: Any, columns: Any, *, scales: Any = 1, scale_width: int = 4, input_scale: bool = False) -> Any:
    """A weight of one byte for each element with a number of scales: one, or one for each output (``weight``, ``weight_scale``).

    Source: compressed-tensors, compressors/naive_quantized; modelopt's ``W8A8_FP8``.

    Args:
        rows: out_features.
        columns: in_features.
        scales: how many.
        scale_width: bytes of each.
        input_scale: a fixed fp32 scale of the inputs stands beside it.

    >>> scaled_bytes(8192, 1024, input_scale=True) - 8192 * 1024
    8
    """
    return rows * columns + scale_width * scales + 4 * input_scale


def packed_bytes(rows: Any, columns: Any, *, bits: int, group: Any, scale_width: int = 2, zero_point: bool = False) -> Any:
    """A weight packed by compressed-tensors: ``weight_packed`` (int32, along the inputs), ``weight_scale``, ``weight_shape``, perhaps zero points.

    Source: compressed-tensors, compressors/pack_quantized.

    Args:
        rows: out_features.
        columns: in_features.
        bits: of a value.
        group: inputs that share a scale; a number not above 0 means all.
        scale_width: bytes of a scale.
        zero_point: packed ones stand beside the scales.

    >>> packed_bytes(4096, 4096, bits=4, group=128)
    8650768
    """
    size = columns if isinstance(group, int) and group <= 0 else group
    groups = ceil_div(columns, size)
    zeros = 4 * ceil_div(rows * bits, WORD_BITS) * groups * zero_point
    return 4 * rows * ceil_div(columns * bits, WORD_BITS) + scale_width * rows * groups + 8 * 2 + zeros


def mxfp4_bytes(numel: Any, *, block: int = 32) -> Any:
    """A weight in MXFP4: two values a byte, an 8-bit exponent for each block (``blocks``, ``scales``): 0.53125 bytes for each element.

    Source: Open Compute Project, Microscaling Formats (MX) Specification 1.0, table 1; transformers/integrations/mxfp4.py.

    Args:
        numel: elements of the weight.
        block: elements that share an exponent.

    >>> mxfp4_bytes(2880 * 2880) / 2880**2
    0.53125
    """
    return ceil_div(numel, 2) + ceil_div(numel, block)


def nvfp4_bytes(numel: Any, *, block: int = 16, input_scale: bool = True) -> Any:
    """A weight in NVFP4: two values a byte, an fp8 scale for each block, an fp32 scale for all, perhaps one for its inputs.

    Source: NVIDIA, Introducing NVFP4 (2025); modelopt's ``NVFP4`` export (``weight``, ``weight_scale``, ``weight_scale_2``, ``input_scale``).

    Args:
        numel: elements of the weight.
        block: elements that share a scale.
        input_scale: a fixed scale of the inputs stands beside it.

    >>> nvfp4_bytes(4096 * 4096) / 4096**2
    0.5625004768371582
    """
    return ceil_div(numel, 2) + ceil_div(numel, block) + 4 + 4 * input_scale


def affine_bytes(rows: Any, columns: Any, *, bits: int, group: int, scale_width: int = 2) -> Any:
    """A weight whose groups have a scale and a zero point of the same width (HQQ, Quanto).

    Source: Badri and Shaji 2023 (HQQ); hqq/core/quantize.py.

    Args:
        rows: out_features.
        columns: in_features.
        bits: of a value.
        group: elements that share a scale.
        scale_width: bytes of a scale, and of a zero point.

    >>> affine_bytes(4096, 4096, bits=4, group=64) / 4096**2
    0.5625
    """
    return ceil_div(rows * columns * bits, 8) + 2 * scale_width * ceil_div(rows * columns, group)
