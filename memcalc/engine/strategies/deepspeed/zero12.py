"""Stages 1 and 2: all weights on every rank, in one flat buffer; the optimizer, and at stage 2 the gradients, in partitions.

How memory moves in a step (zero/stage_1_and_2.py, ``DeepSpeedZeroOptimizer``):

- the first gradient of a backward brings a bucket (``setup_buckets``), two where communication overlaps;
- at stage 2 each gradient moves into it and goes; one that is larger than the bucket stays where it is and is reduced by itself. Before a
  gradient that no longer fits, the bucket is reduced (``average_tensor``), which flattens it once more wherever it belongs to several ranks;
- gradients that reach into the rank's own partition are kept whole, all in one tensor (``copy_grads_in_partition``);
- at stage 1 gradients stay whole until backward is over, and are then reduced in the same way, in the order of the parameters;
- the step takes norms in fp64, flattens what the partition needs, casts it to fp32, lets go of the rest, and steps.
"""

from __future__ import annotations

from typing import Any

from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.result import Term
from memcalc.engine.strategies._marked import free
from memcalc.engine.strategies.deepspeed.common import BUCKET, PARTITION, Bucket, Member, Rank, each, flatten_weights
from memcalc.engine.strategies.deepspeed.layout import Layout
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import zero
from memcalc.specs.job import Job
from memcalc.tape.tensor import Record


class Stage12(Rank):
    """A rank at stage 1 or 2."""

    partitions_gradients = True
    uniform = True

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self.layout = Layout(self.members, rank=self.rank, round_robin=self.zero.round_robin_gradients)
        self.partition = each(self.ranks, self.layout.partition)
        self.touched = each(self.ranks, self.layout.touched)
        self.offloads = self.zero.offload_optimizer.device != "none"
        self.contiguous = self.zero.contiguous_gradients or self.offloads
        self.in_hooks = self.partitions_gradients or self.zero.overlaps
        self.bucket = Bucket()
        self.bucket_ready = False
        self.kept: Any = 0
        self.leftover: list[tuple[Member, Any]] = []

    # ------------------------------------------------------------------ sizes
    def is_own(self, member: Member) -> Any:
        """Whether a parameter reaches into this rank's partition, as 0 or 1."""
        return each(self.ranks, lambda ranks: self.layout.is_own(member, ranks))

    @property
    def widens(self) -> bool:
        """Whether the partition's gradient is accumulated in fp32 beside weights of 16 bits (``_use_compact_grad_partition_buffer``)."""
        return self.config.gradient_dtype == "float32" != self.config.dtype

    @property
    def buffer_width(self) -> int:
        """Bytes of one element of the bucket (``_gradient_reduction_buffer_dtype``)."""
        return self.width

    @property
    def bucket_bytes(self) -> Any:
        """The buffers of the bucket."""
        return self.zero.reduce_bucket_size * self.buffer_width * (2 if self.zero.overlaps else 1) if self.contiguous else 0

    # ------------------------------------------------------------------ states
    def states(self, walk: Walk) -> None:
        """Padding of the flat weights; the partition's master weights and optimizer states; with offload, a buffer for one gradient."""
        padding = (zero.flat_numel(self.num_trainable, ranks=self.ranks) - self.num_trainable) * self.width
        walk.alloc(
            "weights/padding of the flat buffer",
            padding,
            Reason("(flat_numel - num_params) * width", {}, "zero/stage_1_and_2.py, flatten_dense_tensors_aligned"),
        )
        if self.offloads:
            walk.alloc(
                "buffers/gradient on its way to the host",
                self.largest * self.width,
                Reason("largest * width", {"largest": self.largest}, "zero/stage_1_and_2.py, temp_grad_buffer_for_gpu_offload"),
            )
            return
        self.master(walk, self.partition)
        self.optimizer_on_card(walk, [self.partition])

    def initialize(self, walk: Walk) -> None:
        """The weights are flattened into a second copy of themselves; the partition is cloned and cast; a gradient of it is made for a moment."""
        flatten_weights(walk, self)
        if self.offloads:
            walk.alloc("buffers/gradient on its way to the host", self.largest * self.width)
        walk.touch("weights/clone of the partition", self.partition * (self.width + (0 if self.offloads else self.master_width)))
        if not self.offloads:
            self.master(walk, self.partition)
            walk.touch(
                "gradients/zeros", self.partition * self.master_width, Reason("partition * width", {}, "zero/stage_1_and_2.py, initialize_optimizer_states")
            )

    # ------------------------------------------------------------------ accumulation
    def accumulated(self, walk: Walk) -> None:
        """What earlier micro-batches left: the gradient of the partition."""
        self.keep_partition(walk)

    def keep_partition(self, walk: Walk) -> None:
        """The gradient of the partition, as it is accumulated and stepped."""
        if self.offloads and not self.widens:
            return
        numel = self.partition if self.widens else self.touched
        what = "partition" if self.widens else "parameters that reach into the partition"
        walk.alloc(
            PARTITION,
            numel * self.gradient_width,
            Reason(f"elements of the {what} * width", {"numel": numel, "width": self.gradient_width}, "zero/stage_1_and_2.py, copy_grads_in_partition"),
        )

    # ------------------------------------------------------------------ backward
    def begin_backward(self, walk: Walk) -> None:
        """Nothing of this micro-batch is kept yet. Where hooks reduce, no layer is like the next from here on."""
        self.kept = 0
        self.uniform = not self.in_hooks

    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """The first brings the bucket; where hooks reduce, each goes into it."""
        self.open_bucket(walk)
        if self.in_hooks:
            self.put(walk, self.member(part, i, shard))

    def open_bucket(self, walk: Walk) -> None:
        """The bucket's buffers, once."""
        if not self.bucket_ready:
            self.bucket_ready = True
            walk.alloc(
                BUCKET,
                self.bucket_bytes,
                Reason(
                    "reduce_bucket_size * width * buffers",
                    {"reduce_bucket_size": self.zero.reduce_bucket_size, "width": self.buffer_width},
                    "zero/stage_1_and_2.py, setup_buckets",
                ),
            )

    def put(self, walk: Walk, member: Member) -> None:
        """A gradient joins the bucket (``reduce_independent_p_g_buckets_and_remove_grads``)."""
        size = self.zero.reduce_bucket_size
        if self.bucket.numel + member.numel > size:
            self.reduce(walk)
        if self.contiguous and member.numel > size:
            self.bucket.apart = True
            if self.offloads:
                walk.touch("buffers/clone of an oversized gradient", member.numel * self.buffer_width)
        elif self.contiguous:
            walk.free(member.gradient, member.numel * self.buffer_width)
        self.bucket.numel += member.numel
        self.bucket.members.append(member)

    def reduce(self, walk: Walk) -> None:
        """The bucket is reduced, and what is not this rank's goes (``reduce_ipg_grads``)."""
        bucket, self.bucket = self.bucket, Bucket()
        if not bucket.members:
            return
        self.copy_for_reduction(walk, bucket)
        for member in bucket.members:
            self.after_reduction(walk, bucket, member)

    def copy_for_reduction(self, walk: Walk, bucket: Bucket) -> None:
        """What the reduction itself allocates; where the partition's gradient is wider, it is born before, and each piece of it is cast."""
        if self.widens:
            for member in bucket.members:
                self.bring_partition(walk, member)
        copied = each(self.ranks, lambda ranks: self._copied(bucket, ranks))
        walk.touch("buffers/bucket flattened for reduction", copied, Reason("elements of the bucket * width", {}, "zero/stage_1_and_2.py, allreduce_bucket"))

    def _copied(self, bucket: Bucket, ranks: int) -> int:
        parts = self.layout.pieces(bucket.members, ranks)
        casts = [numel * self._cast_width if owner == self.rank % ranks else 0 for owner, numel in parts]
        if self.contiguous and self.zero.reduce_scatter:
            stretches = [numel for _, numel in parts] if any(casts) else zero.runs_of_owners(parts)
            size = self.zero.reduce_bucket_size
            return zero.reduction_bytes(stretches, bucket=size, width=self.buffer_width, reduce_width=self.reduce_width, casts=casts if any(casts) else ())
        flattened = bucket.numel * self.buffer_width if not self.contiguous and len(bucket.members) > 1 else 0
        cast = bucket.numel * self.reduce_width if self.reduce_width != self.buffer_width else 0
        return flattened + cast + max(casts, default=0)

    @property
    def _cast_width(self) -> int:
        """Bytes of one element that is cast for the partition."""
        return self.gradient_width if self.widens and self.reduce_width != self.gradient_width else 0

    def bring_partition(self, walk: Walk, member: Member) -> None:
        """The tensor that keeps the partition's gradient is born with the first parameter that reaches into it."""
        born = self.is_own(member) * (1 - self.kept)
        self.kept = self.kept + born
        numel, width = (self.partition, self.gradient_width) if self.widens else (self.touched, self.width)
        if self.widens and self.partitions_gradients and self.job.run.grad_accum > 1:
            return
        walk.alloc(
            PARTITION,
            born * numel * width,
            Reason("elements of the parameters that reach into the partition * width", {}, "zero/stage_1_and_2.py, copy_grads_in_partition"),
        )

    def after_reduction(self, walk: Walk, bucket: Bucket, member: Member) -> None:
        """A reduced gradient is kept, or goes."""
        if self.offloads:
            self.to_host(walk, member)
        elif self.contiguous and not self.widens:
            self.bring_partition(walk, member)
        if self.contiguous and not bucket.apart:
            return
        own, others = self.is_own(member), 1 - self.is_own(member)
        gone = others * self.partitions_gradients + own * self.contiguous
        walk.free(member.gradient, gone * member.numel * self.buffer_width)
        self.leftover.append((member, 1 - gone))

    def to_host(self, walk: Walk, member: Member) -> None:
        """A gradient's own part: its norm in fp64, and its fp32 copy that goes to the host (``async_inplace_copy_grad_to_fp32_buffer_from_gpu``)."""
        own = each(self.ranks, lambda ranks: self.layout.own_numel(member, ranks))
        walk.touch("gradients/norm in fp64", own * zero.NORM_BYTES, Reason("elements * 8", {}, "zero/stage_1_and_2.py, set_norm_for_param_grad_in_gpu"))

    def end_backward(self, walk: Walk) -> None:
        """What is left is reduced; the bucket goes; the gradient of the partition stays (``independent_gradient_partition_epilogue``)."""
        if not self.in_hooks:
            for member in self.with_gradients:
                self.put(walk, member)
        self.reduce(walk)
        self.close_bucket(walk)
        if self.job.run.grad_accum > 1 and self.partitions_gradients and not self.widens and not self.offloads:
            walk.free(PARTITION, self.touched * self.width)

    def close_bucket(self, walk: Walk) -> None:
        """The bucket goes, and what has stayed where it was; without a bucket, of that the own part is the partition's gradient."""
        walk.free(BUCKET, self.bucket_bytes if self.bucket_ready else 0)
        self.bucket_ready = False
        for member, left in self.leftover:
            walk.free(member.gradient, left * member.numel * self.buffer_width)
            if not self.contiguous and not self.widens:
                walk.alloc(PARTITION, self.is_own(member) * member.numel * self.buffer_width)
        self.leftover = []

    # ------------------------------------------------------------------ step
    def step(self, walk: Walk) -> None:
        """Norms, the flat gradient in fp32, the optimizer."""
        if self.offloads:
            return
        largest = each(self.ranks, self.layout.largest_own)
        norms = largest * zero.NORM_BYTES if self.zero.compute_grad_norm else 0
        walk.touch("gradients/norm in fp64", norms, Reason("largest * 8", {"largest": largest}, "zero/stage_1_and_2.py, get_grad_norm_direct"))
        flat = "gradients/flat gradient of the partition"
        if self.widens:
            self.close_bucket(walk)
            self.optimizer_step(walk, [self.partition])
            walk.free(PARTITION, self.partition * self.gradient_width)
            return
        copied = each(self.ranks, self.layout.flattened)
        walk.alloc(flat, copied * self.width, Reason("partition * width", {"partition": self.partition, "width": self.width}, "zero/stage_1_and_2.py, step"))
        cast = self.partition * self.master_width if self.master_width != self.width else 0
        walk.alloc(
            f"{flat} in fp32", cast, Reason("partition * width", {"partition": self.partition, "width": self.master_width}, "zero/stage_1_and_2.py, step")
        )
        if self.master_width != self.width:
            walk.free(flat, copied * self.width)
        walk.free(PARTITION, self.touched * self.width)
        self.optimizer_step(walk, [self.partition])

    # ------------------------------------------------------------------ other ranks
    def others(self) -> tuple[int, ...]:
        """The one whose partition the most parameters reach into, and the last, whose gradients come first: each rank keeps its own whole."""
        if not isinstance(self.ranks, int) or self.offloads:
            return ()
        touched = self.layout.touched_by_rank(self.ranks)
        last = max(rank for rank, numel in enumerate(touched) if numel)
        return tuple(sorted({touched.index(max(touched)), last} - {0}))

    # ------------------------------------------------------------------ outside the card
    def host(self) -> tuple[Term, ...]:
        """What offload keeps on the host."""
        from memcalc.engine.strategies.deepspeed.host import stage12_terms

        return stage12_terms(self)


class Stage2(Stage12):
    """Gradients are partitioned."""

    accumulates_whole = False


class Stage1(Stage12):
    """Gradients stay whole on every rank until the end of the last backward."""

    partitions_gradients = False

    def accumulated(self, walk: Walk) -> None:
        """Whole gradients, and the bucket, which the first micro-batch brought."""
        super(Stage12, self).accumulated(walk)
        self.open_bucket(walk)


class Stage1Cast(Stage1):
    """Whole gradients are accumulated in another dtype than the weights', parameter by parameter (``_fill_param_grad_accum_attribute``)."""

    accumulates_whole = False

    @property
    def buffer_width(self) -> int:
        """The bucket is of the accumulated gradients."""
        return self.gradient_width

    @property
    def widens(self) -> bool:
        """The partition's gradient is made from fp32 gradients, too."""
        return True

    def accumulated(self, walk: Walk) -> None:
        """Whole gradients in the dtype of accumulation, and the bucket."""
        for member in self.with_gradients:
            walk.alloc(member.gradient, member.numel * self.gradient_width)
        self.open_bucket(walk)

    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """It is cast, and added to what is there."""
        self.open_bucket(walk)
        member = self.member(part, i, shard)
        cast = member.numel * self.gradient_width
        if self.job.run.grad_accum > 1:
            walk.touch("gradients/cast of a gradient", cast)
            free(walk, alive)
        else:
            walk.alloc(f"{member.gradient} in {self.config.gradient_dtype}", cast)
            free(walk, alive)
            walk.free(f"{member.gradient} in {self.config.gradient_dtype}", cast)
            walk.alloc(member.gradient, cast)
        if self.in_hooks:
            self.put(walk, member)

    def end_backward(self, walk: Walk) -> None:
        """Accumulated gradients are views of the bucket, or have stayed where they were: both live until the step lets go of them."""
        for member in self.with_gradients if not self.in_hooks else ():
            self.put(walk, member)
        self.reduce(walk)
