"""Activations by Hugging Face's names (transformers/activations.py, ACT2FN): one kernel each, or written out."""

from __future__ import annotations

from memcalc.errors import UnknownNameError
from memcalc.tape.functional.pointwise import activation, add_scalar, mul, pow2, scale, tanh
from memcalc.tape.tensor import Tensor

KERNELS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu", "mish": "mish"}
"""Names whose function is one kernel that saves its input."""


def apply_activation(x: Tensor, name: str) -> Tensor:
    """The activation of that name on x.

    Raises:
        UnknownNameError: the name is none of transformers'.
    """
    if name in KERNELS:
        return activation(x, KERNELS[name])
    if name == "relu":
        from memcalc.tape.functional.pointwise import keeps_result

        return keeps_result(x, "relu")
    if name == "gelu_new":
        return gelu_new(x)
    raise UnknownNameError("activation", name, (*KERNELS, "relu", "gelu_new"))


def gelu_new(x: Tensor) -> Tensor:
    """NewGELUActivation.forward: ``0.5 * x * (1 + tanh(√(2/π) * (x + 0.044715 * x³)))``, operator by operator."""
    inner = scale(pow2(x, "cube"), "cube scaled")
    inner = scale(x + inner, "argument")
    return mul(scale(x, "half of input"), add_scalar(tanh(inner), "1 + tanh"), "gelu")
