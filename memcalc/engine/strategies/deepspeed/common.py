"""What DeepSpeed's ranks share: the configuration, the flat order of parameters, the optimizer that steps flat tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from memcalc.code.context import Settings
from memcalc.engine.optimizers import optimizer_for
from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.result import Term
from memcalc.engine.strategies._marked import Marked
from memcalc.engine.strategies.base import optimizer_states, optimizer_temporaries, paged_states, whole_model
from memcalc.engine.strategies.registration import parts_of, registered
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import zero
from memcalc.specs.deepspeed import DeepSpeed
from memcalc.specs.job import Job
from memcalc.specs.model import Block, Component
from memcalc.units import DTYPE_BYTES

MASTER = "optimizer/master weights"
PARTITION = "gradients/of this rank's partition"
BUCKET = "buffers/reduce bucket"
STREAMS = {"weights/gathered": "all-gather", "buffers/all-gather": "all-gather", "buffers/bucket ": "reduction"}
"""zero/stage3.py, ``reduce_and_partition_stream``; zero/parameter_offload.py, ``__allgather_stream``; zero/stage_1_and_2.py, ``reduction_stream``."""


class Member(NamedTuple):
    """One parameter of one repetition of a block that takes a gradient, or would: the flat tensors have room for it.

    Attributes:
        shard: the parameter.
        position: its place among all trainable ones.
        offset: where it begins when these are laid end to end.
    """

    shard: Shard
    position: int
    offset: Any

    @property
    def numel(self) -> Any:
        """Its elements."""
        return self.shard.num_params

    @property
    def gradient(self) -> str:
        """The path of its gradient."""
        return f"gradients/{self.shard.path}"


class Bucket:
    """What waits to be reduced.

    Attributes:
        members: the parameters, in the order in which their gradients came.
        numel: elements in all.
        apart: its only gradient is too large for the buffer and has stayed where it was.
    """

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.numel = 0
        self.apart = False


class Rank(Marked):
    """One rank under DeepSpeed.

    Attributes:
        config, zero: what was configured.
        ranks: among which states are partitioned.
        on_card: elements of the flat tensors whose states are on the card.
        rank: which of them this is. But for the parameters at the borders of partitions, all are alike.
        width, master_width, gradient_width, reduce_width: bytes of a weight, of what the optimizer steps, of an accumulated gradient,
            and of one on the wire.
    """

    uniform = False
    on_card: tuple[Any, ...] = ()

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:
        """The whole module is cast to the dtype, weights with one of their own, too (``DeepSpeedEngine._configure_distributed_model``)."""
        return replace(super().settings(job, settings), casts_weights=settings.autocast is None)

    @property
    def streams(self) -> Mapping[str, str]:
        """Beside the computation, where communication overlaps it."""
        return STREAMS if self.zero.overlaps else {}

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        assert job.deepspeed is not None
        self.config: DeepSpeed = job.deepspeed
        self.rank = job.dp_rank
        self.zero = self.config.zero
        self.ranks = job.mesh.dp * job.mesh.cp
        self.width = DTYPE_BYTES[self.config.dtype]
        self.master_width = DTYPE_BYTES[self.config.master_dtype]
        self.gradient_width = DTYPE_BYTES[self.config.gradient_dtype]
        self.reduce_width = DTYPE_BYTES[self.config.reduce_dtype]
        parts = parts_of(plan.parts, job.model.model_type)
        self.members: list[Member] = list(members(parts, job.model.model_type))
        self._first = first_members(parts)
        self.num_trainable: Any = sum(m.numel for m in self.members)

    def member(self, part: Part, i: int, shard: Shard) -> Member:
        """A trainable parameter of the i-th repetition of a block."""
        base, index = self._first[id(part)]
        trainable = [s for s in registered(part, model_type=self.job.model.model_type) if s.wants_gradient]
        position = next(n for n, s in enumerate(trainable) if s is shard)
        found = self.members[base + i * index + position]
        assert found.shard is shard
        return found

    @property
    def with_gradients(self) -> list[Member]:
        """Those to which a gradient comes."""
        return [m for m in self.members if m.shard.trainable]

    @property
    def largest(self) -> Any:
        """Elements of the largest trainable parameter."""
        return max((m.numel for m in self.members), default=0)

    # ------------------------------------------------------------------ the optimizer
    def optimizer_plan(self, numels: Sequence[Any]) -> Plan:
        """A plan whose only parameters are the flat tensors that the optimizer steps, in the dtype of the master weights."""
        shards = tuple(Shard(f"flat {i}", numel, 1, trainable=True, is_expert=False, width=self.master_width) for i, numel in enumerate(numels))
        part = Part(Block("flat", Component()), self.plan.parts[0].profile, shards)
        return replace(self.plan, parts=(part,), settings=replace(self.plan.settings, dtype=self.config.master_dtype))

    @property
    def counts_steps(self) -> bool:
        """Whether the optimizer keeps a counter of steps for each tensor; DeepSpeed's FusedAdam counts in Python."""
        return optimizer_for(self.job.run.optimizer).counter_bytes > 0 and not self.config.builds_fused_adam

    def optimizer_on_card(self, walk: Walk, numels: Sequence[Any]) -> None:
        """States of flat tensors."""
        self.on_card = tuple(numels)
        optimizer_states(walk, self.job, self.optimizer_plan(numels))
        if self.config.builds_fused_adam:
            walk.free("optimizer/step counters", 4 * len(numels))

    def paged(self) -> tuple[Term, ...]:
        """What the optimizer itself keeps on the host of the flat tensors' states."""
        return paged_states(self.job, self.optimizer_plan(self.on_card))

    def optimizer_step(self, walk: Walk, numels: Sequence[Any]) -> None:
        """What the optimizer allocates while it steps flat tensors; DeepSpeed's FusedAdam nothing."""
        if not self.config.builds_fused_adam:
            optimizer_temporaries(walk, self.job, self.optimizer_plan(numels))

    def master(self, walk: Walk, num_params: Any) -> None:
        """The copy of the weights that the optimizer steps."""
        walk.alloc(
            MASTER,
            num_params * self.master_width,
            Reason("num_params * width", {"num_params": num_params, "width": self.master_width}, "stage_1_and_2.py, single_partition_of_fp32_groups"),
        )


def flatten_weights(walk: Walk, rank: Rank) -> None:
    """Trainable weights are copied into one flat buffer, which takes their place."""
    whole_model(walk, rank.job, rank.plan)
    flat = zero.flat_numel(rank.num_trainable, ranks=rank.ranks) * rank.width
    why = Reason("flat_numel * width", {"width": rank.width}, "zero/stage_1_and_2.py, flatten_dense_tensors_aligned")
    walk.alloc("weights/flat buffer", flat, why)
    for part in rank.plan.parts:
        for shard in part.shards:
            if shard.wants_gradient:
                walk.free(f"weights/{part.block.path}", shard.num_params * part.block.repeat * shard.width)


def members(parts: Sequence[Part], model_type: str) -> Iterator[Member]:
    """Every trainable parameter in the order of the model, end to end."""
    offset: Any = 0
    index = 0
    for part in parts:
        for _ in range(part.block.repeat):
            for shard in registered(part, model_type=model_type):
                if shard.wants_gradient:
                    yield Member(shard, index, offset)
                    index, offset = index + 1, offset + shard.num_params


def first_members(parts: Sequence[Part]) -> dict[int, tuple[int, int]]:
    """Of each part: the index of its first trainable parameter, and how many one repetition has."""
    found, index = dict[int, tuple[int, int]](), 0
    for part in parts:
        count = sum(s.wants_gradient for s in part.shards)
        found[id(part)] = (index, count)
        index += count * part.block.repeat
    return found


def each(ranks: Any, compute: Callable[[int], Any]) -> Any:
    """A number for each number of ranks, where that is an array; the same values are computed once."""
    if isinstance(ranks, int):
        return compute(ranks)
    import numpy

    values, places = numpy.unique(ranks, return_inverse=True)
    return numpy.array([compute(int(value)) for value in values])[places].reshape(ranks.shape)
