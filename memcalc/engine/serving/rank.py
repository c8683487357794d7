"""One rank of a server: the weights that it holds, the caches of its layers, and the most that a run of some tokens holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memcalc.components.attention import Attention
from memcalc.components.linear import Linear
from memcalc.components.mla import LatentAttention
from memcalc.components.mlp import MLP, GatedMLP
from memcalc.components.moe import MoE
from memcalc.engine.cache import LayerCache, layer_caches
from memcalc.engine.ranks import Stage, stages_of
from memcalc.engine.result import Term
from memcalc.engine.serving.experts import moe_inside, spread_of
from memcalc.formulas import serving as formulas
from memcalc.models.stored import weight_bytes
from memcalc.specs.job import Job
from memcalc.specs.model import Block, Component, Degrees, Weight
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES, ceil_div

KV_PROJECTIONS = ("k_proj", "v_proj")
ATTENTION = "attn"
"""Part of the names of attention's modules."""
SHARED = "shared_"
"""Part of the names of experts for all tokens."""


class Rank(NamedTuple):
    """What a rank of one pipeline stage holds.

    Attributes:
        stage: which.
        weights: as loaded, by block.
        caches: of its layers.
    """

    stage: Stage
    weights: tuple[Term, ...]
    caches: tuple[LayerCache, ...]

    @property
    def weights_bytes(self) -> int:
        """Of all weights."""
        return sum(term.bytes for term in self.weights)

    @property
    def blocks(self) -> list[Block]:
        """Of the stage, whatever chunk they are in."""
        return [block for chunk in self.stage.chunks for block in chunk]


def ranks_of(job: Job) -> list[Rank]:
    """One rank of each pipeline stage."""
    from memcalc.engine.serving.draft import with_draft

    found = []
    for stage in stages_of(job):
        rank = Rank(stage, (), ())
        found.append(with_draft(job, rank._replace(weights=weights_of(job, rank.blocks), caches=layer_caches(rank.blocks))))
    return found


def weights_of(job: Job, blocks: list[Block]) -> tuple[Term, ...]:
    """Weights as the engine holds them on one rank: cut over tp, in the dtype of the run, or as a quantised checkpoint stores them."""
    degrees, sizes, numbers = degrees_of(job), dict[str, int](), dict[str, int]()
    for block in blocks:
        first = numbers.get(block.path, 0)
        numbers[block.path] = first + block.repeat
        skips = job.model.quantization is not None
        for number in range(first, first + block.repeat) if skips else (first,):
            for module, weight, whole in weight_bytes(block, number, job.model.quantization, job.run.dtype):
                part = whole * int(numel(weight.local(_for(module, weight, degrees, job)))) // max(weight.num_params, 1)
                sizes[block.path] = sizes.get(block.path, 0) + part * (1 if skips else block.repeat)
    how = job.model.quantization.name if job.model.quantization is not None else job.run.dtype
    return tuple(Term(f"weights/{path}", size, "stored bytes / tp", {"tp": job.mesh.tp}, f"as loaded: {how}") for path, size in sizes.items())


def adapters_bytes(job: Job, rank: Rank) -> int:
    """Room for adapters on the linear layers of a rank: those beside experts; a tensor-parallel rank holds its part of what is cut."""
    asked, tp, total = job.run.serving, job.mesh.tp, 0
    for block in _layers(rank):
        for m in _below(block.module):
            if not isinstance(m, Linear) or m.split not in ("column", "row"):
                continue
            inputs, outputs = (m.inputs.size, ceil_div(m.outputs.size, tp)) if m.split == "column" else (ceil_div(m.inputs.size, tp), m.outputs.size)
            each = formulas.lora_bytes(num_adapters=asked.max_loras, rank=asked.max_lora_rank, inputs=inputs, outputs=outputs, width=DTYPE_BYTES[job.run.dtype])
            total += int(each) * block.repeat
    return total


def degrees_of(job: Job) -> Degrees:
    """Into how many parts weights are cut: experts inside, or whole ones spread where the engine is told so."""
    tp, spread = job.mesh.tp, spread_of(job)
    return Degrees(column=tp, row=tp, vocab=tp, expert=spread.whole, expert_column=spread.inside, expert_row=spread.inside)


def attention_tp(job: Job) -> int:
    """Ranks that heads are cut over: those of tp, or, where sequences are spread over them first, as many fewer."""
    return int(job.mesh.tp) // (job.run.sharding.dp or 1) if job.run.serving.enable_dp_attention else int(job.mesh.tp)


def _for(module: str, weight: Weight, degrees: Degrees, job: Job) -> Degrees:
    """KV heads are not cut further than each rank has one; attention is cut less where sequences are spread, and so is what all tokens share."""
    if job.run.serving.enable_dp_attention and ATTENTION in module:
        degrees = degrees._replace(column=attention_tp(job), row=attention_tp(job))
    if module.endswith(KV_PROJECTIONS) and weight.cuts and 0 < job.model.num_kv_heads < attention_tp(job):
        return degrees._replace(column=job.model.num_kv_heads)
    if SHARED in module:
        cards = spread_of(job).shared
        return degrees._replace(column=cards, row=cards)
    return degrees


def forward_bytes(job: Job, rank: Rank, num_tokens: int) -> int:
    """The most that is alive while the rank's fused layers run over so many tokens, beside weights and cache."""
    inside = max((_inside(m, job, num_tokens) for m in components(rank)), default=0)
    return int(formulas.layer_bytes(num_tokens=num_tokens, hidden_size=job.model.hidden_size, inside=inside, width=DTYPE_BYTES[job.run.dtype]))


def hidden_bytes(job: Job, num_tokens: int) -> int:
    """Hidden states of so many tokens."""
    return num_tokens * job.model.hidden_size * DTYPE_BYTES[job.run.dtype]


def has_experts(rank: Rank) -> bool:
    """Whether a layer of it has routed experts."""
    return any(isinstance(m, MoE) for m in components(rank))


def components(rank: Rank, *blocks: Block) -> Iterator[Component]:
    """Every component of a rank's layers, or of some blocks."""
    for block in blocks or _layers(rank):
        yield from _below(block.module)


def _layers(rank: Rank) -> list[Block]:
    return [block for block in rank.blocks if block.role == "layer"]


def _below(module: Component) -> Iterator[Component]:
    yield module
    for _, child in module.children():
        yield from _below(child)


def _inside(m: Component, job: Job, num_tokens: int) -> int:
    """Elements of each token that a part of a layer holds at most, on a rank."""
    tp, found = job.mesh.tp, 0
    if isinstance(m, GatedMLP):
        found = 3 * ceil_div(m.gate.outputs.size // (1 if m.up is not None else 2), tp)
    elif isinstance(m, MLP):
        found = 2 * ceil_div(m.up.outputs.size, tp)
    elif isinstance(m, MoE):
        found = moe_inside(m, job, num_tokens)
    elif isinstance(m, Attention):
        found = ceil_div((2 * m.num_heads + 2 * m.num_kv_heads) * m.head_dim, tp)
    elif isinstance(m, LatentAttention):
        found = ceil_div(m.num_heads * (2 * (m.nope_dim + m.rope_dim) + 2 * m.v_dim), tp)
    elif isinstance(m, Linear) and m.split == "column":
        found = ceil_div(m.outputs.size, tp)
    return int(found)
