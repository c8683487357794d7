"""Loading a model with transformers: what stands beside the weights while they come, on the card and on the host.

Source: transformers 5, core_model_loading.py (tensors are read to the host's page cache and copied to the card one by one, in their final dtype);
modeling_utils.py, ``from_pretrained``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from memcalc.components.linear import Linear
from memcalc.components.moe import Experts
from memcalc.engine.device_map import check_mapped
from memcalc.engine.result import Term
from memcalc.engine.settings import components
from memcalc.errors import InputError
from memcalc.models.read import read_model
from memcalc.specs.job import Job
from memcalc.specs.model import Block, Component, ModelSpec, Weight
from memcalc.specs.run import Run
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES

SHARD_BYTES = 5 * 10**9
"""The largest file of a checkpoint that transformers 4 saves (``max_shard_size``)."""
STACKED = ("gpt_oss", "llama4", "llama4_text", "dbrx", "granitemoe", "granitemoehybrid", "jetmoe")
"""Model types whose checkpoints hold all experts of a layer in one tensor, as the modules do."""
CORE = "transformers, core_model_loading.py"
PLACING = {"device_map", "max_memory"}
"""Keys of loading that training has, too."""


class Beside(NamedTuple):
    """What stands on the card at most while a model is loaded, beside what stays.

    Attributes:
        bytes: of it.
        why: in words.
    """

    bytes: int
    why: str


def beside(job: Job, blocks: Sequence[Block]) -> Beside:
    """While the last of a card's tensors comes: the one that is packed or unpacked, or experts that are put together."""
    width = DTYPE_BYTES[job.run.dtype]
    if job.run.quantization is not None:
        layers = [block for block in read_model(job.run.model).blocks if block.role == "layer"]
        return Beside(_largest(layers, Linear) * width, "the largest linear weight before it is packed")
    if job.model.quantization is not None:
        packed = _largest_packed(job.model)
        return Beside(packed + _largest(job.model.blocks, Experts) * width, "the largest packed weight, and what it is unpacked to before it is put in order")
    if job.model.model_type not in STACKED:
        merged = max((int(numel(w.shape)) for m in _all(blocks) if isinstance(m, Experts) for w in m.own_weights()), default=0)
        return Beside(merged * width, "one layer's experts, one by one, before they are stacked")
    return Beside(0, "each tensor is copied to its place")


def host_terms(job: Job) -> tuple[Term, ...]:
    """A whole copy on the host and the file that is read into it, where the model is not built without storage first."""
    if job.run.loading.low_cpu_mem_usage:
        return ()
    size = job.model.num_params * DTYPE_BYTES[job.run.dtype]
    shard = Term("host/checkpoint's file", min(size, SHARD_BYTES), "its weights, up to max_shard_size", {"max_shard_size": SHARD_BYTES}, "transformers 4")
    return (Term("host/model", size, "parameters * width, built and filled before it goes to the card", {}, "transformers 4, from_pretrained"), shard)


def check_loading(run: Run) -> None:
    """Keys of loading that say nothing, or cannot be.

    Raises:
        InputError: the run trains, or another code loads.
    """
    check_mapped(run)
    for key in sorted(run.loading.model_fields_set - PLACING):
        if run.task != "inference" or run.code != "transformers":
            raise InputError("it is of task inference with code transformers; leave it out", where=f"loading.{key}")
    if run.loading.max_memory is not None and run.loading.device_map is None:
        raise InputError("it says what a device map may use: give device_map, too", where="loading.max_memory")


# ---------------------------------------------------------------------- inside
def _all(blocks: Sequence[Block]) -> Iterator[Component]:
    for block in blocks:
        yield from components(block.module)


def _largest(blocks: Sequence[Block], kind: type[Component]) -> int:
    """Elements of the largest weight of components of a kind."""
    found = (w for m in _all(blocks) if isinstance(m, kind) for w in m.own_weights() if len(w.shape) > 1)
    return max((int(numel(w.shape)) for w in found), default=0)


def _largest_packed(model: ModelSpec) -> int:
    from memcalc.models.stored import weight_bytes

    sizes: Iterator[tuple[str, Weight, int]] = (each for block in model.blocks for each in weight_bytes(block, 0, model.quantization, "bfloat16"))
    return max((size for _, weight, size in sizes if len(weight.shape) > 1 and size < numel(weight.shape) * 2), default=0)
