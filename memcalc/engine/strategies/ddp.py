"""One card, or replicas of it under DistributedDataParallel: everything whole on every rank, and buckets in which gradients are reduced."""

from __future__ import annotations

from memcalc.code.context import Settings
from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.strategies._marked import Marked
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas.buckets import ddp_bucket_bytes
from memcalc.specs.job import Job
from memcalc.tape.tensor import Record


class Engine(Marked):
    """A replica. Its buckets hold every gradient once more, or are the gradients (``gradient_as_bucket_view``)."""

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self.replicas = job.mesh.dp * job.mesh.cp
        self.views = bucket_views(job)

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:
        """Marks are needed only where gradients move into buckets."""
        return super().settings(job, settings) if bucket_views(job) else settings

    def states(self, walk: Walk) -> None:
        """Optimizer states, and the buckets."""
        super().states(walk)
        self.buckets(walk)

    def initialize(self, walk: Walk) -> None:
        """The buckets are made at once."""
        super().initialize(walk)
        self.buckets(walk)

    def buckets(self, walk: Walk) -> None:
        """All gradients once more, for good."""
        trainable = [s for s in self.plan.shards() if s.wants_gradient]
        buckets = sum(ddp_bucket_bytes(s.num_params * s.copies, width=s.width, replicas=self.replicas) for s in trainable)
        if not isinstance(buckets, int) or buckets:
            why = Reason(
                "num_trainable * width",
                {"num_trainable": self.plan.num_trainable, "width": self.plan.width},
                "torch/csrc/distributed/c10d/reducer.cpp, initialize_buckets",
            )
            walk.alloc("buffers/gradient buckets", buckets, why)

    def accumulated(self, walk: Walk) -> None:
        """Gradients of earlier micro-batches, where they are not in the buckets."""
        if not self.views:
            super().accumulated(walk)

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs back."""
        if self.views:
            super().backward(walk, part, i)
        else:
            walk.apply(part.profile.backward)

    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """It is copied into its bucket, and the parameter's gradient is a view of that from there on."""
        if self.job.run.grad_accum == 1:
            for record in alive:
                walk.free(record.path, (self.replicas > 1) * record.num_bytes)


def bucket_views(job: Job) -> bool:
    """Whether gradients are views of buckets; there are none for one replica."""
    replicas = job.mesh.dp * job.mesh.cp
    return job.run.sharding.gradient_as_bucket_view and not (isinstance(replicas, int) and replicas == 1)
