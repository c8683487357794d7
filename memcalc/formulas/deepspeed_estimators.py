"""DeepSpeed's own published estimators of model states, under their own assumptions.

Adam and 16-bit weights; no activations, buckets or step temporaries; every byte of the host multiplied by a factor. Kept for comparison: the
engine counts what is really allocated.
"""

from __future__ import annotations

from typing import NamedTuple

BUFFER_FACTOR = 1.5
"""On the host (``additional_buffer_factor``); DeepSpeed gives no derivation."""


class Needs(NamedTuple):
    """Bytes on the host of one node, and on one card."""

    host_bytes: int
    device_bytes: int


def zero2_needs(total_params: int, *, gpus_per_node: int, nodes: int = 1, offload: bool, factor: float = BUFFER_FACTOR) -> Needs:
    """Stage 2, with or without the optimizer on the host: 2 + 18/N bytes a parameter on the card, of which 4 are the fp32 gradient of the step.

    DeepSpeed's documentation still prints 4 + 16/N, from before its pull request 5099.

    Source: deepspeed/runtime/zero/stage_1_and_2.py, ``estimate_zero2_model_states_mem_needs`` (0.19.8).

    >>> [round(n / 2**30, 2) for n in zero2_needs(2851 * 10**6, gpus_per_node=8, offload=False)]
    [127.45, 11.28]
    """
    gpus = nodes * gpus_per_node
    if offload:
        return Needs(int(total_params * max(4 * gpus, 16) * factor), 2 * total_params)
    return Needs(int(total_params * 4 * gpus_per_node * factor), 2 * total_params + int(18 * total_params / gpus))


def zero3_needs(
    total_params: int,
    *,
    largest_layer_params: int,
    gpus_per_node: int,
    nodes: int = 1,
    offload_optimizer: bool,
    offload_params: bool = False,
    zero_init: bool = True,
    factor: float = BUFFER_FACTOR,
) -> Needs:
    """Stage 3: 18/N bytes a parameter, and one layer whole with its gradient.

    Source: deepspeed/runtime/zero/stage3.py, ``estimate_zero3_model_states_mem_needs`` (0.19.8).

    Args:
        total_params: of the model.
        largest_layer_params: parameters that belong to one module itself; the most of any.
        gpus_per_node, nodes: the cards.
        offload_optimizer, offload_params: what lives on the host; weights only together with the optimizer.
        zero_init: the model is built under ``zero.Init``, cut from the start, and not whole on every rank first.
        factor: on the host.

    >>> [round(n / 2**30, 2) for n in zero3_needs(2851 * 10**6, largest_layer_params=32 * 10**6, gpus_per_node=8, offload_optimizer=False)]
    [1.43, 6.09]
    """
    layer, share = 4 * largest_layer_params, 1 / nodes
    if not offload_optimizer:
        held = largest_layer_params if zero_init else total_params
        return Needs(int(held * 4 * gpus_per_node * factor), layer + int(18 * total_params / (nodes * gpus_per_node)))
    per_param = 18 if offload_params else 16
    host = total_params * (per_param * share if zero_init else max(4 * gpus_per_node, per_param * share)) * factor
    return Needs(int(host), layer + (0 if offload_params else int(2 * total_params / (nodes * gpus_per_node))))
