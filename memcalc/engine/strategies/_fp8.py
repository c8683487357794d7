"""What Transformer Engine keeps for products in fp8: copies of weights, and the largest values of the last steps."""

from __future__ import annotations

from typing import Any

from memcalc.code.megatron.wgrad import shapes
from memcalc.components.moe import Experts, Router
from memcalc.engine.plan import Part, Plan
from memcalc.engine.settings import components
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas.fp8 import amax_bytes, weight_copy_bytes
from memcalc.specs.job import Job
from memcalc.specs.model import Degrees

SOURCE = "transformer_engine/pytorch/module/base.py, get_weight_workspace"


def fp8_copies(walk: Walk, job: Job, plan: Plan) -> None:
    """Copies of the matrices of layers, kept from one micro-batch to the next; where weights are held in fp8 themselves, in the place of bf16.

    A weight held in fp8 has a transposed copy, too, so that it takes as many bytes as one in bf16: nothing is added then.
    """
    for part in plan.parts:
        if part.block.role != "layer":
            continue
        numel = num_matrices(part) * part.block.repeat
        if not job.run.fp8_params:
            why = Reason("2 * elements of matrices", {"elements": numel}, SOURCE)
            walk.alloc(f"weights/{part.block.path} (fp8 and fp8 transposed)", weight_copy_bytes(numel), why)
        products = num_products(part, plan.settings.degrees) * part.block.repeat
        why = Reason("products * 5 * 1024 * 4", {"products": products}, "transformer_engine, amax_history of a delayed scaling recipe")
        walk.alloc(f"buffers/largest values of {part.block.path}", amax_bytes(products), why)


def num_matrices(part: Part) -> Any:
    """Elements of a layer's matrices on this rank; routers stay as they are."""
    routers = {m.module_name for m in components(part.block.module) if isinstance(m, Router)}
    return sum(s.num_params for s in part.shards if len(s.shape) > 1 and s.path.split("/")[-2] not in routers)


def num_products(part: Part, degrees: Degrees) -> Any:
    """Products of a layer: one for weights that stand side by side, one for each expert of this rank."""
    experts = [m.count.size // degrees.expert for m in components(part.block.module) if isinstance(m, Experts)]
    return sum(1 for _ in shapes(part.block.module, degrees)) + sum(2 * (count - 1) for count in experts)
