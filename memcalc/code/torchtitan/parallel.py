"""Tensor parallelism with sequence parallelism between the products, as DTensor runs it.

Sources: torchtitan/models/llama3/infra/parallelize.py, apply_tp; torch/distributed/_functional_collectives.py, all_gather_single and
reduce_scatter_single, which copy where the axis is not the first; torch/distributed/tensor/_redistribute.py.
"""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.torchtitan.selection import output
from memcalc.specs.model import Axis, shard
from memcalc.tape.tensor import Shape, Tensor


def local_seq(ctx: Context) -> Axis:
    """The sequence between tensor-parallel regions: cut over their ranks."""
    return shard(ctx.seq, ctx.settings.tp) if ctx.has_tp else ctx.seq


def gather(ctx: Context, x: Tensor, name: str) -> Tensor:
    """The whole sequence of every rank's part (``Shard(1)`` to ``Replicate``); its gradient, a part of a sum, is scattered."""
    if not ctx.has_tp:
        return x
    part, whole = x.shape, (ctx.batch, ctx.seq, *x.shape[2:])
    y = gathered(ctx, whole, x.dtype, name)
    ctx.tape.record(y, (x,), (), lambda wants, g: (scattered(ctx, g, part, f"gradient of {name}"),))
    return y


def scatter(ctx: Context, x: Tensor, name: str) -> Tensor:
    """This rank's part of the sum over ranks (``Partial`` to ``Shard(1)``); its gradient is gathered."""
    if not ctx.has_tp:
        return x
    whole, dtype, part = x.shape, x.dtype, (ctx.batch, local_seq(ctx), *x.shape[2:])
    ordered = ctx.tape.new(whole, dtype, f"{name} in the order of ranks") if ctx.selection is None or not ctx.selection.replays else None
    y = output(ctx, part, dtype, name)
    del ordered
    ctx.tape.record(y, (x,), (), lambda wants, g: (gathered(ctx, whole, dtype, f"gathered gradient of {name}"),))
    return y


def gathered(ctx: Context, whole: Shape, dtype: str, name: str) -> Tensor:
    """What an all-gather along the sequence makes: rank after rank, and, where there are several sequences, a copy in their order."""
    several = ctx.batch.size > 1
    ranks = ctx.tape.new((Axis("several sequences", several * 1), *whole), dtype, f"{name}, rank after rank")
    y = ctx.tape.new(whole, dtype, name)
    del ranks
    return y


def scattered(ctx: Context, g: Tensor, part: Shape, name: str) -> Tensor:
    """What a reduce-scatter along the sequence makes: a copy in the order of ranks, and this rank's part of the sum."""
    ordered = ctx.tape.new(g.shape, g.dtype, f"{name} in the order of ranks")
    y = ctx.tape.new(part, g.dtype, name)
    del ordered
    return y
