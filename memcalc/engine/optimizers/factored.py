"""Adafactor, LOMO and AdaLomo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memcalc.engine.optimizers.base import Held, Optimizer, Stepped, in_turn
from memcalc.formulas.optimizers import factored
from memcalc.specs.job import Job

ADAFACTOR = "transformers/optimization.py, Adafactor.step"


class Adafactor(Optimizer):
    """transformers' Adafactor without a first moment, as the Trainer has it; each tensor's root mean square is kept, too."""

    counter_bytes = 4

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """fp32 means of rows and columns; of a vector the whole second moment."""
        yield Held("factors", factored.factored_bytes(t.shape), "4 * (rows + columns); vectors 4 * num_params", ADAFACTOR)

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """fp32 copies and squares of one tensor."""
        need = in_turn(tensors, lambda t, before: factored.adafactor_temp_bytes(t.num_params, before, width=t.width))
        yield Held("update of one tensor", need, "most of (16 * num_params + 4 * previous); fp32: 8 * num_params + 4 * previous", ADAFACTOR)


class Lomo(Optimizer):
    """LOMO: weights are stepped in backward, and no gradient outlives the next.

    Args:
        adaptive: AdaLomo, which keeps a factored second moment.
    """

    keeps_gradients = False
    holds_last = True

    def __init__(self, *, adaptive: bool = False) -> None:
        self.adaptive = adaptive
        self.source = f"lomo_optim/{'adalomo' if adaptive else 'lomo'}.py, fuse_update"

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """None, or fp32 means of rows and columns."""
        if self.adaptive:
            yield Held("factors", factored.factored_bytes(t.shape), "4 * (rows + columns); vectors 4 * num_params", "lomo_optim/adalomo.py, __init__")

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """fp32 copies of one gradient and its weight."""
        own: Callable[..., Any] = factored.adalomo_temp_bytes if self.adaptive else factored.lomo_temp_bytes
        yield Held(
            "update of one tensor", in_turn(tensors, lambda t, _: own(t.num_params, width=t.width)), "fp32 copies of a gradient and its weight", self.source
        )
