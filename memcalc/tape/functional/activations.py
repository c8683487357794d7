"""Activations by Hugging Face's names (transformers/activations.py, ACT2FN): one kernel each, or written out."""

from __future__ import annotations

from collections.abc import Callable

from memcalc.errors import UnknownNameError
from memcalc.tape.functional.pointwise import activation, add, add_scalar, keeps_result, like, mul, pow2, scale, tanh
from memcalc.tape.tensor import Tensor

KERNELS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu", "mish": "mish"}
"""Names whose function is one kernel that saves its input."""

RESULTS = ("relu", "sigmoid", "tanh")
"""Names whose function is one kernel that saves its result."""


def apply_activation(x: Tensor, name: str) -> Tensor:
    """The activation of that name on x.

    Raises:
        UnknownNameError: the name is none of transformers'.
    """
    if name in KERNELS:
        return activation(x, KERNELS[name])
    if name in RESULTS:
        return keeps_result(x, name)
    if name not in WRITTEN_OUT:
        raise UnknownNameError("activation", name, (*KERNELS, *RESULTS, *WRITTEN_OUT))
    return WRITTEN_OUT[name](x)


def gelu_new(x: Tensor) -> Tensor:
    """NewGELUActivation.forward: ``0.5 * x * (1 + tanh(√(2/π) * (x + 0.044715 * x³)))``, operator by operator."""
    half = scale(x, "half of input")
    return mul(half, add_scalar(tanh(scale(add(x, scale(pow2(x, "cube"), "cube scaled")), "argument")), "1 + tanh"), "gelu")


def gelu_fast(x: Tensor) -> Tensor:
    """FastGELUActivation.forward: ``0.5 * x * (1 + tanh(0.79788 * x * (1 + 0.044715 * x * x)))``, operator by operator."""
    half = scale(x, "half of input")
    argument = mul(scale(x, "input scaled"), add_scalar(mul(scale(x, "input scaled"), x), "1 + square"), "argument")
    squashed = tanh(argument)
    del argument
    return mul(half, add_scalar(squashed, "1 + tanh"), "gelu")


def gelu_python(x: Tensor) -> Tensor:
    """GELUActivation._gelu_python: ``x * 0.5 * (1 + erf(x / √2))``, operator by operator."""
    half = scale(x, "half of input")
    return mul(half, add_scalar(activation(scale(x, "input scaled"), "erf"), "1 + erf"), "gelu")


def quick_gelu(x: Tensor) -> Tensor:
    """QuickGELUActivation.forward: ``x * sigmoid(1.702 * x)``."""
    return mul(x, keeps_result(scale(x, "input scaled"), "sigmoid"), "gelu")


def relu_squared(x: Tensor) -> Tensor:
    """ReLUSquaredActivation.forward: ``relu(x).square()``."""
    return pow2(keeps_result(x, "relu"), "relu squared")


def bloom_gelu(x: Tensor) -> Tensor:
    """GeLUFunction of BLOOM: saves its input, and works both ways in elementwise steps whose temporaries go at once."""
    with x.tape.no_grad():
        out = gelu_fast(x)
    y = Tensor(x.tape, x.shape, x.dtype, out.storage)

    def backward(wants: tuple[bool, ...], g: Tensor, x: Tensor) -> tuple[Tensor]:
        with x.tape.no_grad():
            slope = tanh(like(x, "argument"))
            left = mul(scale(x, "half of input"), mul(add_scalar(mul(slope, slope)), add_scalar(mul(x, x))))
            slope = add(left, add_scalar(slope, "half of 1 + tanh"), "slope")
            del left
            return (mul(slope, g, "gradient of gelu"),)

    x.tape.record(y, (x,), (x,), backward)
    return y


WRITTEN_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": gelu_new,
    "gelu_accurate": gelu_new,
    "gelu_fast": gelu_fast,
    "gelu_python": gelu_python,
    "gelu_python_tanh": gelu_new,
    "quick_gelu": quick_gelu,
    "relu2": relu_squared,
    "bloom_gelu": bloom_gelu,
}
"""Names whose function is several operators, by the function that runs them."""
