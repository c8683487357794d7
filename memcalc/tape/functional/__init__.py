"""The operators that the models use, by the names of torch and torch.nn.functional.

Each makes its output, says which tensors autograd saves for it, and what its backward allocates. Which tensors an operator
saves is fixed in PyTorch's tools/autograd/derivatives.yaml; what its backward allocates, in the function named there
(torch/csrc/autograd/FunctionsManual.cpp). A new operator is one function here and one line in `__all__` of its module.
"""

from memcalc.tape.functional.attention import scaled_dot_product_attention
from memcalc.tape.functional.loss import log_softmax, nll_loss, softmax
from memcalc.tape.functional.matmul import baddbmm, cast_weight, embedding, linear, matmul
from memcalc.tape.functional.pointwise import (
    activation,
    add,
    add_scalar,
    cast,
    dropout,
    inverse_root,
    keeps_result,
    layer_norm,
    like,
    masked_fill,
    mean,
    mul,
    neg,
    pow2,
    rsqrt,
    scale,
    scale_in_place,
    sub,
    tanh,
)
from memcalc.tape.functional.shape import cat, clone, expand, index, join, narrow, repeat, slice_last, split_heads, split_last, view

__all__ = [
    "activation", "add", "add_scalar", "baddbmm", "cast", "cast_weight", "cat", "clone", "dropout", "embedding", "expand", "index", "inverse_root",
    "join", "keeps_result", "layer_norm", "like", "linear", "log_softmax", "masked_fill", "matmul", "mean", "mul", "narrow", "neg", "nll_loss", "pow2",
    "repeat", "rsqrt", "scale", "scale_in_place", "scaled_dot_product_attention", "slice_last", "softmax", "split_heads", "split_last", "sub", "tanh",
    "view",
]  # fmt: skip
