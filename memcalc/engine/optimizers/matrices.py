"""Optimizers that treat matrices as such: GaLore, APOLLO and Muon. What they do not take steps as under AdamW."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from memcalc.engine.optimizers.base import Held, Optimizer, Stepped, in_turn, total
from memcalc.formulas import optimizers
from memcalc.formulas.optimizers import blocks, factored, low_rank, orthogonal
from memcalc.specs.job import Job
from memcalc.tape.span import maximum

Inner = Literal["adamw", "adamw_8bit", "adafactor"]


class LowRank(Optimizer):
    """GaLore or APOLLO.

    Args:
        inner: what steps the projected gradient.
        apollo: a random projection, and the gradient itself scaled; otherwise the singular vectors, and the update projected back.
        layerwise: each parameter is stepped in backward, as soon as its gradient is there.
    """

    whole_matrices = True

    def __init__(self, inner: Inner = "adamw", *, apollo: bool = False, layerwise: bool = False) -> None:
        self.inner, self.apollo = inner, apollo
        self.keeps_gradients = not layerwise
        self.source = (
            "apollo_torch/apollo.py"
            if apollo
            else {"adamw": "galore_torch/adamw.py", "adamw_8bit": "galore_torch/adamw8bit.py"}.get(inner, "galore_torch/adafactor.py")
        )

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """Moments of the projected gradient and the projection; of other tensors the whole moments."""
        if not t.is_target:
            yield Held("moments", self._inner_bytes(t.num_params, t.shape, t.width), "as without projection", self.source)
            return
        rank, (rows, columns) = job.run.optimizer_rank, t.shape
        shorter = low_rank.smaller(rows, columns)
        kept = (low_rank.projected_numel(rows, columns, rank=rank), (low_rank.smaller(rank, shorter), rows + columns - shorter))
        yield Held("moments of low rank", self._inner_bytes(*kept, t.width), "states of (rank, longer side)", f"{self.source}, step")
        width = 4 if self.inner == "adafactor" else t.width
        projector = width * low_rank.projector_numel(rows, columns, rank=rank, whole=width == 4 and not self.apollo)
        yield Held(
            "projections",
            projector,
            "rank * shorter side * width; in fp32 shorter side^2 * 4",
            "apollo_torch/random_projector.py" if self.apollo else "galore_torch/galore_projector.py",
        )

    def _inner_bytes(self, num_params: Any, shape: tuple[Any, ...], width: int) -> Any:
        if self.inner == "adafactor":
            return factored.factored_bytes(shape)
        if self.inner == "adamw_8bit":
            return blocks.bnb_state_bytes(num_params, states=2, bits=8)
        return optimizers.adamw_state_bytes(num_params, width=width)

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """One tensor's projected gradient, root, quotient and whole update; where a projection is found, its decomposition."""
        rank = job.run.optimizer_rank
        yield Held("update of one tensor", in_turn(tensors, lambda t, before: self._need(t, before, rank)), "of the largest tensor", f"{self.source}, step")
        if not self.apollo:
            found: Any = 0
            for t in tensors:
                if t.is_target:
                    found = maximum(found, low_rank.svd_temp_bytes(*t.shape, width=t.width))
            yield Held(
                "singular value decomposition", found, "4 * (2 * rows * columns + shorter * (rows + columns)), in each 200th step", "galore_projector.py"
            )

    def _need(self, t: Stepped, before: Any, rank: Any) -> Any:
        if self.inner == "adafactor":
            return factored.adafactor_temp_bytes(t.num_params, before, width=t.width)
        if t.is_target:
            own: Callable[..., Any] = low_rank.galore_8bit_temp_bytes if self.inner == "adamw_8bit" else low_rank.galore_temp_bytes
            return own(*t.shape, rank=rank, width=t.width)
        return 0 if self.inner == "adamw_8bit" else optimizers.adamw_single_temp_bytes(t.num_params, width=t.width) + before * t.width


class Muon(Optimizer):
    """torch.optim.Muon on the layers' matrices, AdamW on tables, heads and vectors."""

    whole_matrices = True
    has_foreach = True
    source = "torch/optim/_muon.py"

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """The momentum of a matrix, both moments of what is none."""
        if t.is_hidden:
            yield Held("momentum of matrices", t.num_params * t.width, "num_params * width", self.source)
        else:
            yield Held("moments", optimizers.adamw_state_bytes(t.num_params, width=t.width), "2 * num_params * width", "torch/optim/adamw.py")

    def temporaries(self, job: Job, tensors: Sequence[Stepped]) -> Iterator[Held]:
        """Newton-Schulz iterations of one matrix; the square roots of AdamW's tensors."""
        matrices = [t for t in tensors if t.is_hidden]
        need = in_turn(matrices, lambda t, _: orthogonal.muon_temp_bytes(t.num_params // t.shape[-1], t.shape[-1], width=t.width))
        yield Held("Newton-Schulz iterates", need, "(width + 4) * rows * columns + 4 * shorter^2", self.source)
        others = total((t for t in tensors if not t.is_hidden), lambda t: optimizers.adamw_foreach_temp_bytes(t.num_params, width=t.width))
        yield Held("square roots", others, "num_params * width", "torch/optim/adamw.py, _multi_tensor_adamw")
