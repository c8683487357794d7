"""Which degrees can be: heads, experts, layers and sequence divide over the ranks that share them."""

from __future__ import annotations

from collections.abc import Iterable

from memcalc.engine.ranks import layers_of
from memcalc.engine.settings import windows_of
from memcalc.errors import InputError, ShardingError
from memcalc.specs.job import Mesh
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run


def check_degrees(run: Run, model: ModelSpec, mesh: Mesh) -> list[str]:
    """What had to be assumed so that the degrees go together, in words.

    Raises:
        ShardingError: they cannot; the message names the nearest that can.
    """
    spread = mesh.ep > 1 and run.sharding.dp is None and run.hardware.gpus is None
    assumed = [f"dp {mesh.dp}: the fewest ranks that ep {mesh.ep} spreads over (say how many with gpus)"] if spread else []
    check_heads(run, model, mesh)
    check_experts(run, model, mesh)
    check_sequence(run, model, mesh)
    if mesh.pp == 1 and mesh.vpp == 1:
        return assumed
    if run.sharding.pp_schedule == "zbv" and mesh.vpp != 2:
        raise ShardingError(f"zbv gives every stage two chunks, not {mesh.vpp}; vpp can be 2", where="sharding.vpp")
    if mesh.pp == 1:
        raise ShardingError(f"vpp {mesh.vpp} cuts pipeline stages into chunks, and pp is 1; with vpp, pp can be 2 or more", where="sharding.vpp")
    if sum(block.role == "embedding" for block in model.blocks) > 1:
        raise ShardingError(f"{model.name} has an encoder and a decoder, whose stages are not counted; pp can be 1", where="sharding.pp")
    _, note = layers_of(run.sharding, model, mesh)
    full = [] if "grad_accum" in run.model_fields_set else [f"enough micro-batches to fill the pipeline of {mesh.pp} stages (say how many with grad_accum)"]
    return [*assumed, *full, *([note] if note else [])]


def check_heads(run: Run, model: ModelSpec, mesh: Mesh) -> None:
    """Heads divide over tensor-parallel ranks. So do KV heads, but Megatron-core's ranks may share one (attention.py, get_query_key_value_tensors)."""
    where = "sharding.tp"
    if model.num_heads and model.num_heads % mesh.tp:
        raise ShardingError(f"{model.name} has {model.num_heads} attention heads, {_not_dividing('tp', mesh.tp, model.num_heads)}", where=where)
    groups = model.num_kv_heads
    if groups and groups % mesh.tp and (run.code != "megatron" or mesh.tp % groups):
        raise ShardingError(f"{model.name} has {groups} KV heads, {_not_dividing('tp', mesh.tp, groups)}", where=where)


def check_experts(run: Run, model: ModelSpec, mesh: Mesh) -> None:
    """Experts divide over expert-parallel ranks, and those over the ranks of a stage."""
    if run.sharding.capacity_factor is not None and not num_experts(model):
        raise InputError(f"{model.name} has no experts whose capacity it could be", where="sharding.capacity_factor")
    if run.sharding.etp is not None and run.code != "megatron":
        raise InputError(f"code {run.code} cuts experts as tp cuts everything; leave it out, or use code: megatron", where="sharding.etp")
    count = num_experts(model)
    if mesh.ep == 1 and (run.sharding.etp is None or not count):
        return
    if not count:
        raise ShardingError(f"{model.name} has no experts for ep {mesh.ep} to spread; ep can be 1", where="sharding.ep")
    if count % mesh.ep:
        raise ShardingError(f"{model.name} has {count} experts, {_not_dividing('ep', mesh.ep, count)}", where="sharding.ep")
    ranks = mesh.world // mesh.pp
    if ranks % (mesh.ep * mesh.etp):
        able = [d for d in _divisors(count) if not ranks % (d * mesh.etp)]
        hint = f"the nearest that can be: {_near(able, mesh.ep)}" if able else f"etp {mesh.etp} itself does not divide them"
        raise ShardingError(f"ep {mesh.ep} * etp {mesh.etp} does not divide the {ranks} ranks of a pipeline stage; {hint}", where="sharding.ep")


def num_experts(model: ModelSpec) -> int:
    """Routed experts of a layer, the most there are; 0 for a dense model."""
    return max((weight.shape[i].size for _, weight, _ in model.weights() for kind, i in weight.cuts if kind == "expert"), default=0)


def num_parts(code: str, cp: int) -> int:
    """Equal parts that a sequence is cut into for context-parallel ranks.

    >>> num_parts("transformers", 2), num_parts("megatron", 2), num_parts("megatron", 1)
    (2, 4, 1)
    """
    return cp if code == "transformers" or cp == 1 else 2 * cp


def check_sequence(run: Run, model: ModelSpec, mesh: Mesh) -> None:
    """Each rank has as long a part of the sequence as any other; Megatron-core's and torchtitan's, two parts, one from either end.

    A Ulysses group exchanges sequence for heads, so a tensor-parallel rank's heads, and KV heads, divide over it (TE, context_parallel.py).
    Around transformers accelerate does so with SDPA, and knows no mask but the causal one (big_modeling.py, _attach_context_parallel_hooks).
    """
    if mesh.cp == 1:
        return
    parts = num_parts(run.code, mesh.cp)
    if run.seq_len is not None and run.seq_len % parts:
        near = f"{run.seq_len // parts * parts}, {(run.seq_len // parts + 1) * parts}" if run.seq_len > parts else str(parts)
        raise ShardingError(f"seq_len {run.seq_len} does not divide into {parts} parts for cp {mesh.cp}; the nearest that do: {near}", where="sharding.cp")
    if run.code == "transformers":
        _check_attention(run, model)
    if run.code != "megatron" or run.sharding.cp_comm_type != "a2a":
        return
    for count, what in ((model.num_heads, "heads"), (model.num_kv_heads, "KV heads")):
        mine = max(1, count // mesh.tp)
        if mine % mesh.cp:
            raise ShardingError(f"{mine} {what} are on each rank, {_not_dividing('cp', mesh.cp, mine)} with cp_comm_type a2a", where="sharding.cp")


def _check_attention(run: Run, model: ModelSpec) -> None:
    if run.attention == "eager" or run.attention not in model.attentions:
        raise InputError("context parallelism puts steps of a fused kernel together; use sdpa", where="attention")
    if run.attention == "sdpa" and any(window is not None for window in windows_of(model)):
        raise InputError(f"accelerate's context parallelism knows full causal attention alone, and {model.name} has windows", where="sharding.cp")


def _divisors(count: int) -> list[int]:
    return [d for d in range(1, count + 1) if count % d == 0]


def _near(able: Iterable[int], degree: int) -> str:
    return ", ".join(map(str, sorted(sorted(able, key=lambda d: abs(d - degree))[:2])))


def _not_dividing(what: str, degree: int, count: int) -> str:
    return f"which {what} {degree} does not divide; the nearest that do: {_near(_divisors(count), degree)}"
