"""Attention over context-parallel ranks as PyTorch runs it: keys and values of all ranks are gathered once, and gone through in steps.

Source: torch/distributed/tensor/experimental/_context_parallel/_attention.py, _templated_ring_attention and its backward, _AllGatherRotater (the
default of torch, accelerate and torchtitan), _AllToAllRotater for gradients, _SDPAMerger. Each step's output is merged in fp32.
"""

from __future__ import annotations

from typing import Any

from memcalc.specs.model import Axis
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Tensor, numel


def pass_on(tape: Tape, cp: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The forward pass of the last rank, which works on all of its queries in every step.

    Args:
        tape: where tensors are born.
        cp: ranks.
        query, key, value: this rank's own, heads of each token and their width last.

    Returns:
        the output, and the log-sum-exp of each row.
    """
    own = [like(key, "key in order"), like(value, "value in order")]
    joined = join(tape, key, value, key.dtype)
    gathered = gather(tape, cp, joined)
    del joined
    shape = (*query.shape[:-1], value.shape[-1])
    first = tape.new(shape, query.dtype, "output of a step")
    total = widened(first, "outputs, merged")
    sums = tape.new(query.shape[:-1], "float32", "log-sum-exp, merged")
    del own
    step = tape.new(shape, query.dtype, "output of a step")
    del first
    wide = widened(step, "output of a step in fp32")
    difference = like(total, "difference")
    weighted = like(total, "weighted difference")
    del difference
    total = like(total, "outputs, merged")
    del weighted, wide, step, gathered
    out = like(total, "attention output", query.dtype) if total.dtype != query.dtype else total
    return out, sums


def pass_back(tape: Tape, cp: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The backward pass: gradients are summed in fp32; those of keys and values travel, so that one buffer is sent while another arrives."""
    sums = [like(t, f"gradient of {n} in fp32", "float32") for t, n in ((query, "query"), (key, "key"), (value, "value"))]
    own = [like(key, "key in order"), like(value, "value in order")]
    joined = join(tape, key, value, key.dtype)
    gathered = gather(tape, cp, joined)
    del joined
    step = [like(t, f"gradient of {n}, of a step") for t, n in ((query, "query"), (key, "key"), (value, "value"))]
    sent = join(tape, key, value, "float32")
    arrived = like(sent, "gradients of keys and values, arrived")
    del own
    step = [like(query, "gradient of query, of a step"), *step[1:]]
    del sent, sums[1:]
    sums += [like(t, f"gradient of {n} in fp32", "float32") for t, n in ((key, "key"), (value, "value"))]
    sent = join(tape, key, value, "float32")
    arrived = like(sent, "gradients of keys and values, arrived")
    del step, gathered
    of_query = like(query, "gradient of query")
    del sums, sent
    made = of_query, like(key, "gradient of key"), like(value, "gradient of value")
    del arrived
    return made


def attend(tape: Tape, cp: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Both, as one operator: saves queries, keys, values, output and log-sum-exp."""
    out, sums = pass_on(tape, cp, query, key, value)

    def backward(wants: tuple[bool, ...], g: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return pass_back(tape, cp, query, key, value)

    tape.record(out, (query, key, value), (query, key, value, out, sums), backward)
    return out


def join(tape: Tape, key: Tensor, value: Tensor, dtype: str) -> Tensor:
    """Both in one flat tensor."""
    return tape.new((Axis("keys and values", numel(key.shape) + numel(value.shape)),), dtype, "keys and values")


def gather(tape: Tape, cp: Any, joined: Tensor) -> Tensor:
    """Those of all ranks."""
    return tape.new((Axis("cp", cp), *joined.shape), joined.dtype, "keys and values of all ranks")


def widened(x: Tensor, name: str) -> Tensor:
    """``x.to(float32)``."""
    return x if x.dtype == "float32" else like(x, name, "float32")
