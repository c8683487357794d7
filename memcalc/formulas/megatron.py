"""States of Megatron-core's optimizers, and the contiguous buffers that they live in."""

from __future__ import annotations

import math
from typing import Any

from memcalc.units import MiB, ceil_div, round_up

PARAM_ALIGNMENT = 64
"""Elements to which a parameter's place in a buffer of the distributed optimizer is aligned (megatron/core/optimizer/param_layout.py, pad_param_start)."""

BUCKET_ALIGNMENT = 128
"""Elements to whose least common multiple with the data-parallel size the end of a bucket is aligned (the same file, bucket_end_divisor)."""

WORKSPACE_BYTES, LARGE_WORKSPACE_BYTES = 4 * MiB, 32 * MiB + 1024
"""What Transformer Engine keeps for its products, and on Hopper and later (transformer_engine/pytorch/cpp_extensions/gemm.py)."""

GROUPED_STREAMS = 4
"""Streams over which it spreads the products of experts, each with a workspace of its own (transformer_engine/common/util/multi_stream.cpp)."""

STATE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
"""Bytes of a state by Megatron's name of its dtype."""


def state_bytes_per_param(*, dtype: str, shards: int, distributed: bool) -> float:
    """Weights, gradients and Adam's states, in bytes a parameter of the rank's model shard.

    Source: megatron-core's guide to the distributed optimizer (docs/user-guide/features/dist_optimizer.md): bf16 weights with fp32
    gradients 18 or 6 + 12/d; fp16 weights and gradients 20 or 4 + 16/d, since gradients are copied to fp32; fp32 16 or 8 + 8/d.

    Args:
        dtype: of the weights.
        shards: d, the data-parallel ranks (context-parallel ones included) that share the states.
        distributed: whether the distributed optimizer is used.

    >>> [state_bytes_per_param(dtype=t, shards=8, distributed=True) for t in ("bfloat16", "float16", "float32")]
    [7.5, 6.0, 9.0]
    >>> state_bytes_per_param(dtype="bfloat16", shards=8, distributed=False)
    18.0
    """
    whole, shared = {"bfloat16": (6, 12), "float16": (4, 16), "float32": (8, 8)}[dtype]
    return whole + shared / (shards if distributed else 1)


def workspace_bytes(*, hopper: bool, experts: bool) -> int:
    """Tensors that Transformer Engine makes at its first products and keeps.

    Source: transformer_engine/pytorch/cpp_extensions/gemm.py, ``get_cublas_workspace``.

    Args:
        hopper: the card is one of Hopper's generation or later.
        experts: there are products of experts, too.

    >>> workspace_bytes(hopper=True, experts=False), workspace_bytes(hopper=False, experts=True) // 2**20
    (33555456, 20)
    """
    return (LARGE_WORKSPACE_BYTES if hopper else WORKSPACE_BYTES) * (1 + GROUPED_STREAMS * experts)


def padded_vocab_size(vocab_size: Any, *, tp: Any, divisible_by: int = 128) -> Any:
    """Rows of the vocabulary after padding, a multiple of ``make_vocab_size_divisible_by * tp``.

    Source: megatron/training/vocab_utils.py, ``calculate_padded_vocab_size``.

    >>> padded_vocab_size(50257, tp=1), padded_vocab_size(128256, tp=8)
    (50304, 129024)
    """
    return round_up(vocab_size, divisible_by * tp)


def buffer_numel(num_params: Any, *, shards: Any) -> Any:
    """Elements of a contiguous buffer whose parameters, aligned already, are so many: one bucket, padded to equal shards.

    Source: megatron/core/optimizer/distrib_optimizer.py, ``_compute_per_buffer_param_layout``.

    Args:
        num_params: the sum of `aligned_numel` over the parameters.
        shards: ranks of the group that shares the optimizer's states.

    >>> buffer_numel(1000 * 64, shards=3)
    64128
    """
    multiple = math.lcm(shards, BUCKET_ALIGNMENT) if isinstance(shards, int) else BUCKET_ALIGNMENT * shards
    return round_up(num_params, multiple)


def aligned_numel(num_params: Any) -> Any:
    """Elements of one parameter in a buffer of the distributed optimizer.

    Source: megatron/core/optimizer/param_layout.py, ``pad_param_start``.

    >>> aligned_numel(100)
    128
    """
    return round_up(num_params, PARAM_ALIGNMENT)


def main_param_bytes(*, precision_aware: bool, main_params: str, dtype: str) -> int:
    """Bytes of a main parameter beside a trained weight of that dtype.

    Source: transformer_engine/pytorch/optimizers/fused_adam.py: the precision-aware optimizer keeps of an fp32 main parameter the 16 bits
    that the bf16 weight lacks (``store_param_remainders``, the default), or an fp16 one. fp32 weights are their own main parameters.

    >>> [main_param_bytes(precision_aware=p, main_params="fp32", dtype="bfloat16") for p in (False, True)]
    [4, 2]
    """
    if dtype == "float32":
        return 0
    if not precision_aware:
        return 4
    return 2 if dtype == "bfloat16" or main_params == "fp16" else 4


def gradient_bytes(*, dtype: str, in_bf16: bool, main_grads: str) -> int:
    """Bytes of an element of the gradient buffer.

    Source: megatron/training/arguments.py: with bf16 weights gradients are accumulated and reduced in fp32 unless ``grad_reduce_in_bf16``
    or ``main_grads_dtype`` says otherwise; fp16 weights keep fp16 gradients.

    >>> gradient_bytes(dtype="bfloat16", in_bf16=False, main_grads="fp32"), gradient_bytes(dtype="float16", in_bf16=False, main_grads="fp32")
    (4, 2)
    """
    if dtype == "float32":
        return 4
    return 2 if in_bf16 or dtype == "float16" else STATE_BYTES[main_grads]


def expert_data_parallel(world: Any, *, pp: Any, ep: Any, etp: Any) -> Any:
    """Ranks that hold the same routed experts: world / (etp · ep · pp).

    Source: megatron/core/parallel_state.py, ``initialize_model_parallel`` (expert_data_parallel_size).

    >>> expert_data_parallel(64, pp=2, ep=2, etp=4)
    4
    """
    return world // (pp * ep * etp)


def communicator_ranks(
    *, dp: Any, tp: Any, pp: Any, cp: Any, ep: Any, etp: Any, distributed: bool, experts: bool, tied: bool, training: bool = True
) -> dict[str, Any]:
    """Ranks of each process group that something is sent in; each has an NCCL communicator of its own, also where its ranks are another's.

    Source: megatron/core/parallel_state.py, ``initialize_model_parallel``; the default group at the first barrier, and in training: gradients
    (distributed/distributed_data_parallel.py; of tied tables finalize_model_grads.py), their norm (optimizer/__init__.py,
    ``grad_stats_parallel_group``: with the distributed optimizer all ranks'), what model-parallel ranks agree upon
    (megatron/training/training.py, ``train_step``), and how many rows experts get (transformer/moe/token_dispatcher.py, ``preprocess``).

    Args:
        dp, tp, pp, cp, ep, etp: degrees.
        distributed: whether the distributed optimizer is used.
        experts: whether there are any.
        tied: whether both ends of a pipeline hold one table.
        training: gradients and norms are sent.

    >>> communicator_ranks(dp=4, tp=1, pp=2, cp=1, ep=4, etp=1, distributed=True, experts=True, tied=False)
    {'all': 8, 'pp': 2, 'dp': 4, 'tp and pp': 2, 'optimizer': 8, 'ep': 4, 'ep and etp': 4}
    >>> communicator_ranks(dp=1, tp=2, pp=1, cp=1, ep=1, etp=1, distributed=True, experts=False, tied=False)
    {'all': 2, 'tp': 2, 'tp and pp': 2, 'optimizer': 2}
    """
    world = dp * tp * pp * cp
    groups = {"all": world, "tp": tp, "pp": pp, "cp": cp}
    if training:
        groups |= {"dp": dp * cp, "tp and pp": tp * pp} | ({"optimizer": world} if distributed else {})
        groups |= {"both ends": 2} if tied and pp > 1 else {}
    if experts:
        groups |= {"ep": ep, "etp": etp, "ep and etp": ep * etp} | ({"dp of experts": world // (ep * etp * pp)} if training else {})
    return {name: ranks for name, ranks in groups.items() if ranks > 1}


def shard_numel(numel: Any, *, shards: Any) -> Any:
    """Elements of one rank's part of a padded buffer.

    Source: megatron/core/optimizer/distrib_optimizer.py, ``_build_model_gbuf_range``.

    >>> shard_numel(64128, shards=3)
    21376
    """
    return ceil_div(numel, shards)


def megatron_lm_state_bytes(
    *, tp_sharded: int, replicated: int, experts: int, embedding: int, final_layernorm: int = 0, tp: int = 1, pp: int = 1, ep: int = 1, etp: int = 1,
    dp: int = 1, expert_dp: int = 1, distributed: bool = True, tied: bool = True
) -> float:  # fmt: skip
    """What Megatron-LM prints for weights, gradients and states of the most loaded stage: an even share of all layers, and one table.

    Source: megatron/training/theoretical_memory_usage.py, ``compute_weight_and_optimizer_memory``.

    Args:
        tp_sharded, replicated, experts: parameters of all layers that tensor parallelism cuts, that it does not, and of routed experts.
        embedding: of one table.
        final_layernorm: of the last norm.
        tp, pp, ep, etp, dp, expert_dp: degrees.
        distributed: whether the distributed optimizer is used.
        tied: the head uses the table; otherwise it has its own, which without a pipeline is on the same rank.

    >>> megatron_lm_state_bytes(tp_sharded=896, replicated=64, experts=1024, embedding=256, final_layernorm=8, tp=2, pp=2, ep=2, etp=4, dp=16, expert_dp=4)
    3195.0
    """
    tables = 2 if not tied and pp == 1 else 1
    dense = (tp_sharded / pp + tables * embedding) / tp + (replicated + final_layernorm) / pp
    routed = experts / pp / (ep * etp)
    rate, expert_rate = (state_bytes_per_param(dtype="bfloat16", shards=d, distributed=distributed) for d in (dp, expert_dp))
    return dense * rate + routed * expert_rate


def bridge_params_per_rank(*, by_stage: list[int], embedding: int, tp: int = 1, tied: bool = True, even: bool = True) -> float:
    """Dense parameters of the most loaded rank as Megatron-Bridge counts them: everything is cut by tensor parallelism.

    Source: Megatron-Bridge, src/megatron/bridge/training/utils/theoretical_memory_utils.py, ``_dense_parameters_on_most_loaded_shard``.

    Args:
        by_stage: parameters of each stage's layers, the last norm with the last stage's.
        embedding: of one table.
        tp: degree.
        tied: whether the head uses the table.
        even: stages share the layers evenly; otherwise both ends hold a table, tied or not.

    >>> bridge_params_per_rank(by_stage=[6272, 6304], embedding=512, tp=2)
    3400.0
    """
    if even:
        tables = 2 if not tied and len(by_stage) == 1 else 1
        return sum(by_stage) / (len(by_stage) * tp) + tables * embedding / tp
    loads = list(by_stage)
    loads[0] += embedding
    loads[-1] += embedding
    return max(loads) / tp
