"""What sharing a step over cards costs in time, as a share of the step's own arithmetic. Relative, for ranking plans: no promise of a throughput.

The machine is one of H100s: NVIDIA's data sheet gives 989 TFLOP/s in bf16 without sparsity, 450 GB/s each way over NVLink, and one 400 Gb/s adapter a
card; published runs reach about four tenths of the first (Llama Team 2024, section 3.3.2). Ratios of these hold roughly for other nodes, too.
"""

from __future__ import annotations

FLOPS = 989e12 * 0.4
NVLINK, NETWORK, PCIE = 450e9, 50e9, 55e9
"""Bytes a second, each way, of one card."""

NODE = 8
"""Cards that NVLink connects."""

HIDDEN = 2 / 3
"""The share of a step's arithmetic that is backward, behind which the exchange of gradients and weights hides (Zhao et al. 2023, FSDP)."""


def compute_seconds(active_params: int, tokens: int, *, ranks: int) -> float:
    """Forward and backward of so many tokens, spread over `ranks` that share the model.

    Source: 6 floating-point operations a parameter and token, Kaplan et al. 2020, section 2.1.

    >>> round(compute_seconds(8 * 10**9, 8192, ranks=1), 3)
    0.994
    """
    return 6 * active_params * tokens / ranks / FLOPS


def recompute_share(recompute: str, *, seq_len: int, hidden_size: int) -> float:
    """Arithmetic that is done again: a forward pass, or attention's core alone.

    Source: Chen et al. 2016; for selective, Korthikanti et al. 2022, appendix A: 4 b s² h of 72 b s h² (1 + s / 6 h).

    >>> round(recompute_share("full", seq_len=2048, hidden_size=4096), 2), round(recompute_share("selective", seq_len=2048, hidden_size=12288), 3)
    (0.33, 0.009)
    """
    if recompute == "full":
        return 1 / 3
    return seq_len / (18 * hidden_size) / (1 + seq_len / (6 * hidden_size)) if recompute == "selective" else 0.0


def bubble_share(pp: int, vpp: int, micro_batches: int) -> float:
    """Time in which a stage waits, over the time in which it works.

    Source: Narayanan et al. 2021, section 2.2: (p - 1) / (v m).

    >>> bubble_share(16, 1, 16)
    0.9375
    """
    return (pp - 1) / (vpp * micro_batches)


def tensor_seconds(tp: int, *, tokens: int, hidden_size: int, layers: int, passes: int = 4) -> float:
    """All-reduces of tensor parallelism, or the all-gathers and reduce-scatters of sequence parallelism, which move as much, in bf16.

    Args:
        tp: ranks.
        tokens, hidden_size, layers: of a micro-batch on one stage.
        passes: all-reduces a layer: two forward, two backward, two more where forward runs again.

    Source: Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.2.

    >>> round(tensor_seconds(8, tokens=8192, hidden_size=16384, layers=1) * 1e3, 2)
    4.18
    """
    return passes * layers * 2 * (tp - 1) / tp * tokens * hidden_size * 2 / (NVLINK if tp <= NODE else NETWORK)


def data_seconds(local_params: int, *, ranks: int, passes: int, width: int = 2, inside_node: bool = False) -> float:
    """Gradients and weights between data-parallel ranks: `passes` times this rank's share of the model.

    Source: Rajbhandari et al. 2020, section 7: two passes up to stage 2, three of stage 3.

    >>> round(data_seconds(10**9, ranks=4, passes=2), 3)
    0.06
    """
    return passes * local_params * width * (ranks - 1) / ranks / (NVLINK if inside_node else NETWORK)


def ring_seconds(cp: int, *, tokens: int, kv_size: int, layers: int, inside_node: bool) -> float:
    """Keys and values of context-parallel ranks round the ring: forward once, backward with their gradients, in bf16.

    Source: Liu et al. 2023, Ring Attention, section 3.

    >>> round(ring_seconds(2, tokens=4096, kv_size=1024, layers=1, inside_node=False) * 1e3, 2)
    1.01
    """
    return layers * 3 * (cp - 1) * tokens * 2 * kv_size * 2 / (NVLINK if inside_node else NETWORK)


def expert_seconds(ep: int, *, tokens: int, hidden_size: int, top_k: int, layers: int, inside_node: bool) -> float:
    """Tokens to their experts and back, forward and backward, in bf16.

    Source: Lepikhin et al. 2020, GShard: two all-to-alls a layer and direction.

    >>> round(expert_seconds(8, tokens=4096, hidden_size=4096, top_k=2, layers=1, inside_node=True) * 1e3, 2)
    0.52
    """
    return layers * 4 * (ep - 1) / ep * tokens * top_k * hidden_size * 2 / (NVLINK if inside_node else NETWORK)


def stage_seconds(*, tokens: int, hidden_size: int, vpp: int) -> float:
    """Hidden states between pipeline stages, there and back, for every chunk.

    Source: Narayanan et al. 2021, section 2.2.

    >>> round(stage_seconds(tokens=4096, hidden_size=4096, vpp=1) * 1e3, 2)
    1.34
    """
    return 2 * vpp * tokens * hidden_size * 2 / NETWORK


def offload_seconds(states: int, *, width: int = 4) -> float:
    """Gradients to the host and weights back over PCIe.

    Source: Ren et al. 2021, ZeRO-Offload.

    >>> round(offload_seconds(55 * 10**9), 1)
    4.0
    """
    return states * width / PCIE
