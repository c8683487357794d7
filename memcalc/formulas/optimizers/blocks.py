"""States of 8 and 4 bits, quantised in blocks that share a scale."""

from __future__ import annotations

from typing import Any

from memcalc.units import ceil_div

BNB_BLOCK = 256
"""Elements that share a scale (bitsandbytes/optim/optimizer.py, ``init_state``)."""
MIN_QUANTISED = 4096
"""Smaller tensors keep full states, in bitsandbytes (``min_8bit_size``) and torchao (``_new_buffer``)."""
TORCHAO_BLOCK = 256
"""What transformers gives torchao (trainer_optimizer.py, ``_get_torchao_optimizer``); torchao's own for 4 bits is 128."""
PAGED_FROM = 10**5
"""Elements from which a paged optimizer's state is managed memory (``get_state_buffer``)."""


def bnb_state_bytes(num_params: Any, *, states: int, bits: int) -> Any:
    """States of one tensor: fp32, or one byte an element and an fp32 scale for each block of 256.

    Source: bitsandbytes/optim/optimizer.py, ``Optimizer2State.init_state``, ``Optimizer1State.init_state``; ademamix.py (three states, the fast and
    the slow average in one buffer).

    Args:
        num_params: elements of the tensor.
        states: 1 (Lion, RMSprop), 2 (Adam) or 3 (AdEMAMix).
        bits: 8 or 32.

    >>> bnb_state_bytes(2**20, states=2, bits=8) / 2**20
    2.03125
    >>> bnb_state_bytes(4095, states=2, bits=8) / 4095
    8.0
    """
    full = 4 * num_params
    if bits == 32:
        return states * full
    quantised, small = num_params + 4 * ceil_div(num_params, BNB_BLOCK), num_params < MIN_QUANTISED
    return states * (small * full + (1 - small) * quantised)


def bnb_paged_bytes(num_params: Any, *, states: int, bits: int) -> Any:
    """The part of them that is managed memory, which pages to the host: what has an element for each parameter, of tensors of 100,000 or more.

    Scales stay on the card.

    Source: bitsandbytes/optim/optimizer.py, ``get_state_buffer``.

    >>> bnb_paged_bytes(2**20, states=2, bits=8) / 2**20
    2.0
    >>> bnb_paged_bytes(99_999, states=2, bits=32)
    0
    """
    return (num_params >= PAGED_FROM) * states * num_params * (4 if bits == 32 else 1)


def torchao_state_bytes(num_params: Any, *, bits: int, width: int, block: int = TORCHAO_BLOCK) -> Any:
    """Both moments of one tensor: codes, an fp32 scale for each block, and a table of the codes' values for each moment.

    A tensor that is small, or not a multiple of the block, keeps moments in its own dtype.

    Source: torchao/optim/adam.py, ``_new_buffer``; subclass_8bit.py and subclass_4bit.py, ``zeros``.

    >>> torchao_state_bytes(2**20, bits=4, width=2) / 2**20
    1.0313720703125
    >>> torchao_state_bytes(4100, bits=8, width=2) / 4100
    4.0
    """
    quantised = 2 * (num_params * bits // 8 + 4 * (num_params // block) + 4 * 2**bits)
    plain = (num_params < MIN_QUANTISED) | (num_params % block != 0)
    return plain * 2 * width * num_params + (1 - plain) * quantised
