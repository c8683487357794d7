"""Checkpoints around a layer: all of it runs again in backward, or the outputs of some of its operators were kept and take their places.

Source: torchtitan/distributed/activation_checkpoint.py, _apply_full_ac and _apply_op_sac (``selective_ac_option: op``);
torch/utils/checkpoint.py, create_selective_checkpoint_contexts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from memcalc.code.checkpoint import checkpoint
from memcalc.code.context import Context
from memcalc.tape.functional.pointwise import like
from memcalc.tape.tensor import Shape, Tensor


class Selection:
    """What one layer keeps, from its first run to its second.

    Attributes:
        selects: whether it keeps any outputs.
        kept: those, in order.
        again: whether it runs for the second time.
        num_products: matrix products so far, of which every second is run again.
        beside: what the layer gets beside its input.
    """

    def __init__(self, *, selects: bool) -> None:
        self.selects = selects
        self.kept: deque[Tensor] = deque()
        self.again, self.num_products = True, 0
        self.beside: tuple[Tensor, ...] = ()

    def begin(self) -> None:
        """A run begins."""
        self.again, self.num_products = not self.again, 0

    @property
    def replays(self) -> bool:
        """Whether operators that are kept do not run now."""
        return self.selects and self.again

    def outputs(self, made: Callable[[], tuple[Tensor, ...]], count: int) -> tuple[Tensor, ...]:
        """The outputs of an operator that are kept, so many: as made, or as they were kept."""
        if self.again:
            return tuple(self.kept.popleft() for _ in range(count))
        found = made()
        self.kept += [Tensor(out.tape, out.shape, out.dtype, out.storage) for out in found]
        return found


def output(ctx: Context, shape: Shape, dtype: str, name: str, *, is_product: bool = False) -> Tensor:
    """A fresh output of an operator that selective checkpoints keep: attention, reduce-scatter, and every other matrix product."""

    def made() -> Tensor:
        return ctx.tape.new(shape, dtype, name)

    chosen: Selection | None = ctx.selection
    if chosen is None or not chosen.selects:
        return made()
    chosen.num_products += is_product
    return made() if is_product and chosen.num_products % 2 == 0 else chosen.outputs(lambda: (made(),), 1)[0]


def checkpointed(ctx: Context, layer: Callable[[Tensor], Tensor], x: Tensor, beside: tuple[Tensor, ...], *, widens: bool) -> Tensor:
    """A layer under a checkpoint, which keeps its inputs; one that ends in a cast casts its gradient before it runs again."""
    chosen = Selection(selects=ctx.settings.options == "selective")

    def run(x: Tensor, *beside: Tensor) -> Tensor:
        chosen.begin()
        ctx.selection, chosen.beside = chosen, beside
        try:
            return layer(x)
        finally:
            ctx.selection, chosen.beside = None, ()

    return checkpoint(ctx, run, x, *beside, first=(lambda g: like(g, "gradient of answers in fp32", "float32")) if widens else None)
