"""Liger's fused kernels in the place of norms, rotary positions and the gate of feed-forward networks (linkedin/Liger-Kernel 0.8.5)."""

from __future__ import annotations

from memcalc.tape import functional as F
from memcalc.tape.tensor import Axis, Tensor

MULTIPROCESSORS = 132
"""Of an H100 (NVIDIA H100 white paper); the norm's backward makes a row of partial sums for each."""


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Saves x and, in fp32, a reciprocal root mean square for each row; its gradient takes the place of the output's (ops/rms_norm.py)."""
    tape = x.tape
    out = F.like(x, "output")
    inverse = tape.new(x.shape[:-1], "float32", "inverse root mean square")
    kind = (weight.shape, weight.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        of_weight = None
        if wants[1]:
            parts = tape.new((Axis("multiprocessors", MULTIPROCESSORS), *kind[0]), "float32", "partial sums")
            total = tape.new(kind[0], "float32", "gradient of weight in fp32")
            del parts
            of_weight = total if kind[1] == "float32" else tape.new(*kind, "gradient of weight")
            del total
        return (_same(g) if wants[0] else None), of_weight

    tape.record(out, (x, weight), (x, inverse), backward)
    return out


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up`` in one kernel; saves both, and writes their gradients into them (ops/swiglu.py)."""
    out = F.like(gate, "gate * up")
    gate.tape.record(out, (gate, up), (gate, up), lambda wants, g, a, b: (_same(a), _same(b)))
    return out


def rotate(query: Tensor, keys: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Both turned in place; saves the angles (ops/rope.py)."""
    turned = [_same(query), _same(keys)]
    query.tape.record(turned, (query, keys), angles, lambda wants, *given: (given[0], given[1]))
    return turned[0], turned[1]


def _same(x: Tensor) -> Tensor:
    return Tensor(x.tape, x.shape, x.dtype, x.storage)
