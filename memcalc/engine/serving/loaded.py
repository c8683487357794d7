"""What vLLM makes of weights once they are read: tables of rotary angles, and experts in the layout of its kernels."""

from __future__ import annotations

from memcalc.components.attention import Attention
from memcalc.components.mla import LatentAttention
from memcalc.components.moe import MoE
from memcalc.engine.result import Term
from memcalc.engine.serving.rank import Rank, components, degrees_of
from memcalc.formulas.mxfp4_kernels import KERNELS, Kernel, experts_bytes
from memcalc.formulas.quantization import mxfp4_bytes
from memcalc.specs.gpus import Gpu
from memcalc.specs.job import Job
from memcalc.units import DTYPE_BYTES, GiB, ceil_div

BLACKWELL = ("b200", "gb200", "b300", "gb300")
LARGE = 70 * GiB
"""A card that is told by its size alone is taken for a Hopper from here on, as by vLLM's defaults."""
TABLE = "vllm/model_executor/layers/rotary_embedding/base.py, cos_sin_cache"
LAYOUT = "vllm/model_executor/layers/quantization/mxfp4.py"


def loaded(job: Job, rank: Rank, card: Gpu) -> tuple[Term, ...]:
    """Terms beside the weights as they are stored."""
    return (*_tables(job, rank), *_experts(job, rank, card))


def generation(card: Gpu) -> str:
    """``hopper``, ``blackwell`` (data-centre cards) or ``other``."""
    if card.name.startswith(BLACKWELL):
        return "blackwell"
    named = card.nominal_gb is not None
    return "hopper" if (card.hopper and card.name.startswith(("h", "gh"))) or (not named and card.capacity_bytes >= LARGE) else "other"


def _tables(job: Job, rank: Rank) -> tuple[Term, ...]:
    """Cosines and sines of every position, once for each kind of angles."""
    length = job.model.max_position_embeddings or job.seq_len
    kinds = {(m.rotary.name, m.rotary.dim) for m in components(rank) if isinstance(m, Attention | LatentAttention) and m.rotary is not None}
    size = sum(length * dim * DTYPE_BYTES[job.run.dtype] for _, dim in kinds)
    inputs = {"max_position_embeddings": length, "tables": len(kinds)}
    return (Term("weights/rotary tables", size, "max_position_embeddings * rotary_dim * width", inputs, TABLE),) if size else ()


def _experts(job: Job, rank: Rank, card: Gpu) -> tuple[Term, ...]:
    """Of experts in MXFP4: what the kernel's layout takes beyond the checkpoint's."""
    if job.model.quantization is None or job.model.quantization.method != "mxfp4":
        return ()
    kernel = KERNELS[generation(card)]
    more = sum(_wider(job, m, kernel) * times for m, times in _sparse(rank))
    inputs = {"hidden_size to": kernel.hidden, "intermediate_size to": kernel.intermediate, "second scales' rows to": kernel.swizzle}
    return (Term(f"weights/layout of {kernel.name} experts", more, "padded sizes, fp32 biases, scales before and after swizzling", inputs, LAYOUT),)


def _sparse(rank: Rank) -> list[tuple[MoE, int]]:
    return [(m, block.repeat) for block in rank.blocks if block.role == "layer" for m in components(rank, block) if isinstance(m, MoE)]


def _wider(job: Job, m: MoE, kernel: Kernel) -> int:
    """Of one layer's experts."""
    degrees, hidden = degrees_of(job), int(m.experts.hidden.size)
    count, inner = ceil_div(int(m.experts.count.size), degrees.expert), ceil_div(int(m.experts.intermediate.size), degrees.expert_column)
    held = experts_bytes(num_experts=count, hidden_size=hidden, intermediate_size=inner, kernel=kernel, biased=m.experts.bias)
    biases = (2 * inner + hidden) * DTYPE_BYTES[job.run.dtype] * m.experts.bias
    return int(held - count * (mxfp4_bytes(2 * inner * hidden) + mxfp4_bytes(hidden * inner) + biases))
