"""Experts over the cards of a server: what each holds of them, and the tokens that they are given.

vLLM's data-parallel ranks are engines of their own but for routed experts, which all of them share: cut inside over all their cards, or whole ones spread
over them with expert parallelism (model_executor/layers/fused_moe/config.py, `FusedMoEParallelConfig.make`). So each sees every rank's tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from memcalc.components.moe import Experts, MoE
from memcalc.errors import ShardingError
from memcalc.formulas.serving import experts_inside
from memcalc.specs.job import Job
from memcalc.specs.model import Component
from memcalc.units import ceil_div

BLOCKWISE = ("vllm", "sglang")
"""Engines that take blocks of fp8 only whole (model_executor/layers/quantization/fp8.py and layers/quantization/fp8.py, `create_weights`)."""


class Spread(NamedTuple):
    """How routed experts stand on cards.

    Attributes:
        inside: cards that an expert is cut over.
        whole: cards over which whole experts are spread.
        gathers: ranks whose tokens come together before the experts.
        shared: cards that what all tokens share is cut over.
    """

    inside: int
    whole: int
    gathers: int
    shared: int


def spread_of(job: Job) -> Spread:
    """Of an engine's ranks."""
    tp, ep, dp = int(job.mesh.tp), int(job.mesh.ep), int(job.mesh.dp)
    if job.run.code != "vllm":
        return Spread(max(tp // ep, 1), ep, 1, tp)
    parallel = job.run.serving.enable_expert_parallel
    whole = dp * tp if parallel else ep
    return Spread(max(dp * tp // whole, 1), whole, dp, 1 if parallel and dp > 1 else tp)


def moe_inside(m: MoE, job: Job, num_tokens: int) -> int:
    """Elements for each token of a rank that its experts hold, with what is gathered for them: hidden states and router logits of all.

    Source: vllm/distributed/device_communicators/all2all.py, `AgRsAll2AllManager`, which is the default.
    """
    spread = spread_of(job)
    ranks, hidden, inner = spread.gathers, m.experts.hidden.size, ceil_div(m.experts.intermediate.size, spread.inside)
    each = experts_inside(num_tokens=num_tokens * ranks, top_k=m.gate.top_k, hidden_size=hidden, intermediate_size=inner)
    gathered = hidden + m.experts.count.size if ranks > 1 else 0
    return int(ranks * (each + gathered))


def check_experts(job: Job) -> None:
    """Blocks of fp8 are whole on every rank.

    Raises:
        ShardingError: they are not, and the engine would not load them.
    """
    inside, quantization = spread_of(job).inside, job.model.quantization
    if inside == 1 or quantization is None or job.run.code not in BLOCKWISE:
        return
    block = next((rule.scheme.block[0] for rule in quantization.rules if rule.scheme.kind == "fp8_block"), 1)
    for width in {width for part in job.model.blocks for width in _widths(part.module)}:
        if width % inside or (width // inside) % block:
            hint = " or enable_expert_parallel" if job.run.code == "vllm" else ""
            raise ShardingError(
                f"experts of {width} over {inside} cards are {width / inside:g} wide, no multiple of the {block} that share a scale in fp8:"
                f" {job.run.code} does not load them; cut them over fewer cards{hint}",
                where="sharding.tp",
            )


def _widths(module: Component) -> set[int]:
    found = {int(module.intermediate.size)} if isinstance(module, Experts) else set()
    return found.union(*(_widths(child) for _, child in module.children()))
