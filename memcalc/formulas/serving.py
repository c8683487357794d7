"""What serving engines set aside: budgets, activations of a profiling run, the sampler's tensors. Constants bear the name of their owner."""

from __future__ import annotations

import math
from typing import Any

from memcalc.units import MiB, ceil_div

SORT_BYTES = 8 + 4 + 8
"""torch's sort of a row's fp32 values while it runs, for each value: the indices that it starts from (int64), and CUB's second buffer for keys and
indices. Source: aten/src/ATen/native/cuda/Sort.cu, ``segmented_sort_pairs``; cub::DeviceSegmentedRadixSort without double buffers."""
SORTED_BYTES = 4 + 8
"""What the sort gives: fp32 values and int64 indices."""
EXPERT_CHUNK = 32768
"""Tokens that vLLM's fused experts take at once (VLLM_FUSED_MOE_CHUNK_SIZE)."""

VLLM_KERNELS_BYTES = 92 * MiB
"""What kernels that are loaded in vLLM's profiling run take on the card: 0.09 GiB, the median of eight public start-up logs of one card each
("non_torch_memory takes", vLLM 0.5 to 0.8; 0.05 to 0.16)."""

TRTLLM_RESERVED = 0.015
"""aiconfigurator, sdk/backends/trtllm_backend.py, KV_CACHE_MEMORY_RESERVED_FRACTION: the block allocator's own."""
TRTLLM_OTHER_BYTES = 3584 * MiB
"""aiconfigurator, systems/h100_sxm.yaml, other_mem: context, libraries and engine, 3.5 GiB on a card taken as 80 GiB."""
TRTLLM_LEAST_BYTES = 70 * MiB
"""aiconfigurator, the same file: no engine has smaller activations."""
TRTLLM_WIDTHS: dict[str, tuple[float, float, float]] = {"dense": (11, 6.5, 5), "moe": (22, 13, 10)}
"""aiconfigurator, the same file, c_dict of its families LLAMA and MOE: activations over 2 bytes, tokens and heads * head_dim, for tp 1, 2, and 4 or more."""


def sampler_bytes(*, num_seqs: Any, vocab_size: Any, width: int) -> Any:
    """The sampler of vLLM's V1 runner in its profiling run, which takes top-k and top-p for every sequence, so that all logits are sorted.

    Alive while the sort runs: logits as the head gives them, their fp32 copy, the sorted values and indices, and what the sort itself needs.

    Source: vllm/v1/worker/gpu_model_runner.py, ``_dummy_sampler_run``; vllm/v1/sample/ops/topk_topp_sampler.py, ``apply_top_k_top_p``.

    Args:
        num_seqs: sequences in the run.
        vocab_size: of the model.
        width: bytes of a logit.

    >>> round(sampler_bytes(num_seqs=1024, vocab_size=128256, width=2) / 2**30, 2)
    4.65
    """
    return num_seqs * vocab_size * (width + 4 + SORTED_BYTES + SORT_BYTES)


def layer_bytes(*, num_tokens: Any, hidden_size: Any, inside: Any, width: int) -> Any:
    """One layer of a server's fused code: the residual, the normalised input that it reads, and the most that its inside holds.

    Source: vllm/model_executor/models/llama.py, ``LlamaDecoderLayer`` (its norms add in place).

    Args:
        num_tokens: of the run.
        hidden_size: of the model.
        inside: elements of each token, on a rank: for a gated network 3 * intermediate_size / tp (gate and up side by side, their product).
        width: bytes of an element.

    >>> layer_bytes(num_tokens=8192, hidden_size=4096, inside=3 * 14336, width=2)
    838860800
    """
    return num_tokens * (2 * hidden_size + inside) * width


def experts_inside(*, num_tokens: Any, top_k: int, hidden_size: Any, intermediate_size: Any) -> Any:
    """Elements of each token inside vLLM's fused experts: one workspace for gate and up and for what comes down, one for their product.

    Source: vllm/model_executor/layers/fused_moe/fused_moe.py, ``fused_experts_impl``: intermediate_cache1 and 3 share their memory.

    Args:
        num_tokens: of the run; no more than a chunk of them are inside at once.
        top_k: experts of each token.
        hidden_size, intermediate_size: of an expert on a rank.

    >>> experts_inside(num_tokens=8192, top_k=4, hidden_size=2880, intermediate_size=2880)
    37440
    """
    widest = max(hidden_size, 2 * intermediate_size)
    chunk = num_tokens - (num_tokens - EXPERT_CHUNK) * (num_tokens > EXPERT_CHUNK)
    return ceil_div(chunk * top_k * (widest + intermediate_size), num_tokens) + hidden_size


def lora_bytes(*, num_adapters: int, rank: int, inputs: Any, outputs: Any, width: int) -> Any:
    """The room that vLLM keeps for adapters on one linear layer, whether or not any is loaded.

    Source: vllm/lora/layers/base_linear.py, ``create_lora_weights``: ``lora_a_stacked``, ``lora_b_stacked``.

    Args:
        num_adapters: max_loras.
        rank: max_lora_rank.
        inputs, outputs: of the layer on a rank.
        width: bytes of an element.

    >>> lora_bytes(num_adapters=4, rank=16, inputs=4096, outputs=4096, width=2)
    1048576
    """
    return num_adapters * rank * (inputs + outputs) * width


def vllm_requested_bytes(total_bytes: int, utilization: float) -> int:
    """What vLLM asks of a card.

    Source: vllm/v1/worker/gpu_worker.py, ``determine_available_memory``, and v1/worker/utils.py, ``request_memory``.

    >>> vllm_requested_bytes(80 * 10**9, 0.9)
    72000000000
    """
    return math.ceil(total_bytes * utilization)


def sglang_fraction(*, total_mib: float, chunked_prefill: int, tp: int, pp: int, decode_max_bs: int, num_prefill_graphs: int = 0) -> float:
    """SGLang's default of mem_fraction_static: what it does not reserve for activations and graphs.

    Source: sglang/srt/server_args.py, ``_handle_gpu_memory_settings``.

    Args:
        total_mib: of the card.
        chunked_prefill: tokens of a prefill chunk.
        tp, pp: degrees.
        decode_max_bs: largest batch of a decode graph.
        num_prefill_graphs: sizes that prefill graphs are captured for.

    >>> sglang_fraction(total_mib=81559, chunked_prefill=8192, tp=1, pp=1, decode_max_bs=256)
    0.835
    """
    reserved = 512 + 1.5 * max(chunked_prefill, 2048) + tp * pp / 8 * 1024 + 2 * decode_max_bs + 8 * num_prefill_graphs
    if total_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return round((total_mib - reserved) / total_mib, 3)


def trtllm_activation_bytes(*, num_tokens: int, width: int, tp: int, kind: str = "dense") -> int:
    """TensorRT-LLM's activations as aiconfigurator counts them.

    Source: aiconfigurator, sdk/backends/trtllm_backend.py, ``_get_memory_usage``.

    Args:
        num_tokens: max_num_tokens of the engine.
        width: heads * head_dim.
        tp: tensor-parallel ranks.
        kind: ``dense`` or ``moe``.

    >>> trtllm_activation_bytes(num_tokens=4096, width=4096, tp=1) / 2**20
    352.0
    """
    one, two, more = TRTLLM_WIDTHS[kind]
    return max(int(2 * num_tokens * width * (one if tp == 1 else two if tp < 4 else more)), TRTLLM_LEAST_BYTES)


def trtllm_cache_bytes(free_bytes: int, fraction: float) -> int:
    """The pool of TensorRT-LLM: a fraction of what is free once the engine is there, less its allocator's own.

    Source: aiconfigurator, as above; TensorRT-LLM, KvCacheConfig.free_gpu_memory_fraction.

    >>> trtllm_cache_bytes(1000, 0.9)
    886
    """
    return max(int(free_bytes * fraction * (1 - TRTLLM_RESERVED)), 0)
