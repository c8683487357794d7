"""torch's optimizers, and those whose states are as large as the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memcalc.engine.optimizers.base import Held, Optimizer, Stepped, in_turn, total
from memcalc.formulas import optimizers
from memcalc.formulas.optimizers import dense
from memcalc.specs.job import Job

ADAMW = "torch/optim/adamw.py"


class AdamW(Optimizer):
    """torch.optim.AdamW; fused kernels need nothing on top.

    Args:
        fused: one kernel for all tensors.
    """

    counter_bytes = optimizers.STEP_COUNTER_BYTES

    def __init__(self, *, fused: bool = False) -> None:
        self.has_foreach = not fused
        self.fused = fused

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """Both moments in the parameter's dtype."""
        yield Held("moments", optimizers.adamw_state_bytes(t.num_params, width=t.width), "2 * num_params * width", ADAMW)

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """Square roots of the second moment: of all tensors at once, or of one, with its quotient.

        Tensors of two dtypes step as two groups; the first group's square roots are still bound to their variable while the second's are made.
        Likewise, where tensors step one by one, the quotient of the one before is still bound while the next one's root and quotient are made.
        """
        if self.fused:
            return
        if job.foreach:
            roots = total(tensors, lambda t: optimizers.adamw_foreach_temp_bytes(t.num_params, width=t.width))
            yield Held("square roots", roots, "num_params * width", f"{ADAMW}, _multi_tensor_adamw")
        else:
            need = in_turn(tensors, lambda t, before: before * t.width + optimizers.adamw_single_temp_bytes(t.num_params, width=t.width))
            yield Held("square root", need, "most of (previous + 2 * tensor)", f"{ADAMW}, _single_tensor_adamw")


class Averages(Optimizer):
    """So many running averages of a fixed or of the parameter's own width, and perhaps a list of roots in the step.

    Args:
        name: of the averages.
        states: how many there are.
        source: file and function.
        width: bytes of an element; None: of the parameter's.
        roots: tensors as large as all parameters that a multi-tensor step makes.
        counts: a step counter is kept with each tensor.
        scalars: further bytes for each tensor.
        kahan: 16-bit parameters also keep what rounding loses.
    """

    def __init__(
        self, name: str, states: int, source: str, *, width: int | None = None, roots: int = 0, counts: bool = False, scalars: int = 0, kahan: bool = False
    ) -> None:
        self.name, self.num_states, self.source, self.width = name, states, source, width
        self.roots, self.kahan, self.has_foreach = roots, kahan, roots > 0
        self.counter_bytes = scalars + (optimizers.STEP_COUNTER_BYTES if counts else 0)

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """The averages."""
        width = self.width or t.width
        found = dense.ema_state_bytes(t.num_params, states=self.num_states, width=width)
        yield Held(self.name, found, f"{self.num_states} * num_params * {self.width or 'width'}", self.source)
        if self.kahan:
            yield Held("compensation of rounding", dense.kahan_bytes(t.num_params, width=t.width), "num_params * width", self.source)

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """Roots, of all tensors at once or of one beside those of the one before."""
        if not self.roots:
            return
        if job.foreach:
            yield Held("square roots", total(tensors, lambda t: self.roots * t.num_params * t.width), f"{self.roots} * num_params * width", self.source)
        else:
            yield Held("square root", in_turn(tensors, lambda t, before: (t.num_params + before) * t.width), "previous + tensor", self.source)


class RMSprop(Averages):
    """torch.optim.RMSprop; with `momentum` one more buffer."""

    def __init__(self) -> None:
        super().__init__("square average", 1, "torch/optim/rmsprop.py", roots=1, counts=True)

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """The average of squares, and the momentum."""
        yield from super().states(job, t)
        if job.run.momentum > 0:
            yield Held("momentum", t.num_params * t.width, "num_params * width", self.source)


class SGD(Optimizer):
    """torch.optim.SGD."""

    has_foreach = True

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """The momentum buffer, where there is momentum."""
        momentum = optimizers.sgd_state_bytes(t.num_params, width=t.width, momentum=job.run.momentum > 0)
        yield Held("momentum", momentum, "num_params * width", "torch/optim/sgd.py")


class AnyPrecision(Averages):
    """torchdistx's AnyPrecisionAdamW with transformers' defaults: both moments in fp32, no compensation."""

    def __init__(self) -> None:
        super().__init__("moments", 2, "torchdistx/optimizers/anyprecision_optimizer.py", width=4)

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """Root and quotient of one tensor, beside the quotient of the one before."""
        need = in_turn(tensors, lambda t, before: 4 * before + dense.any_precision_temp_bytes(t.num_params, width=4))
        yield Held("square root", need, "most of (previous + 2 * tensor) * 4", self.source)


class GrokAdamW(Optimizer):
    """grokadamw's: three states that wait on the host and come to the card tensor by tensor."""

    source = "grokadamw/grokadamw.py, _update_group"

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """Both moments and the amplified average, on the host."""
        found = dense.ema_state_bytes(t.num_params, states=3, width=t.width)
        yield Held("moments and amplified average", found, "3 * num_params * width", self.source, on_host=True)

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """The three on the card, the amplified gradient and the root."""
        need = in_turn(tensors, lambda t, before: dense.grok_temp_bytes(t.num_params, before, width=t.width))
        yield Held("states of one tensor", need, "most of (5 * tensor + previous, 4 * previous + 2 * tensor)", self.source)
