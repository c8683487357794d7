"""Stage 3: every parameter is cut over the ranks, and whole only around its uses.

How memory moves in a step (zero/stage3.py, ``DeepSpeedZeroOptimizer_Stage3``; zero/partition_parameters.py):

- between steps: each parameter's shard, the small ones whole besides, a bucket, the shards of all gradients, master weights, optimizer states;
- parameters are gathered and released by the `Coordinator`; several at once pass through a buffer that is larger than they are by padding
  and lives until the last of them is used, so that what is gathered ahead may be there twice;
- a gradient moves into the bucket; one that does not fit stays where it is. Before a gradient that no longer fits, the bucket is
  reduce-scattered, which lays it out by owners in a copy (``reduce_scatter_coalesced``), and its shards are added to the gradient shards;
- the step takes each sub-group in turn: its gradients flattened, cast to fp32, stepped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.strategies._marked import free
from memcalc.engine.strategies.deepspeed.common import BUCKET, Rank, each
from memcalc.engine.strategies.deepspeed.coordinator import Coordinator, Limits, Param
from memcalc.engine.strategies.deepspeed.modules import NAMELESS, Call, Timeline, parameters_of, timeline
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import zero
from memcalc.specs.job import Job
from memcalc.tape.tensor import Record

GATHERED = "weights/gathered"
BUFFER = "buffers/all-gather"
SHARDS = "gradients/shards"
SECONDARY = "weights/secondary shards"
PERSISTENT = "weights/kept whole"


class Stage3(Rank):
    """A rank of which every parameter is a shard.

    Attributes:
        lines: of each part, what happens in it.
        params: every parameter of every repetition, in the order in which modules register them.
        users: of each part, repetition and module: the parameters that it uses.
        waiting: gradients in the bucket; `held` those among them that have stayed where they were.
    """

    marks = "modules"
    accumulates_whole = False

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        if self.zero.mics_shard_size > 0:
            self.ranks = self.zero.mics_shard_size
        self.lines = {id(part): timeline(part) for part in plan.parts}
        self.params: list[Param] = []
        self.users: dict[tuple[int, int, str], list[Param]] = {}
        self._make_params()
        knobs = self.zero
        limits = Limits(knobs.prefetch_bucket_size, knobs.max_live_parameters, knobs.max_reuse_distance, sequential=knobs.allgather_sequential)
        self.coordinator = Coordinator(list(self._order()), limits=limits, ledger=self)
        self.gathers = self.ranks > 1
        self.waiting: list[Any] = []
        self.held: list[tuple[Record, ...]] = []
        self.numel_waiting = 0
        self.secondary: set[Param] = set()
        self.walk = Walk()

    def _make_params(self) -> None:
        kept = 0
        table: Param | None = None
        for part in self.plan.parts:
            owners = parameters_of(part, self.lines[id(part)])
            for i in range(part.block.repeat):
                made: dict[str, Param] = {}
                for shard in sorted(part.shards, key=lambda s: s.path.count("/") < 3):
                    small = shard.num_params <= self.zero.param_persistence_threshold and kept + shard.num_params <= self.zero.model_persistence_threshold
                    kept += shard.num_params if small else 0
                    made[shard.path] = Param(len(self.params), shard.num_params, self.width, shard.trainable, small)
                    self.params.append(made[shard.path])
                for module, paths in owners.items():
                    self.users[id(part), i, module] = [made[path] for path in paths]
            if part.block.role == "embedding":
                table = self.params[0]
            if part.block.role == "head" and self.job.model.tied and table is not None:
                innermost = max((module for module in owners), key=len, default=part.block.path)
                self.users.setdefault((id(part), 0, innermost), []).append(table)

    def _order(self) -> Iterator[Sequence[Param]]:
        """The parameters of each module call of a pass."""
        yield from ((), ())
        for part in self.plan.parts:
            for i in range(part.block.repeat):
                yield from self._entered(part, i, self.lines[id(part)].forward)
            if part.block.role == "embedding":
                yield ()
        yield ()
        for part in reversed(self.plan.parts):
            if part.block.role == "norm":
                yield ()
            for i in reversed(range(part.block.repeat)):
                yield from self._entered(part, i, self.lines[id(part)].backward)

    def _entered(self, part: Part, i: int, steps: Sequence[tuple[Any, Any, tuple[Call, ...]]]) -> Iterator[Sequence[Param]]:
        for _, _, calls in steps:
            for call in calls:
                if call.kind.startswith("enter"):
                    yield self.users.get((id(part), i, call.module), ())

    # ------------------------------------------------------------------ states
    def resident(self, walk: Walk) -> None:
        """Shards; small parameters whole besides; the bucket and the gradients' shards; master weights and states."""
        offloaded = self.zero.offload_param.device != "none"
        for part in self.plan.parts if not offloaded else ():
            numel = sum(zero.shard_numel(s.num_params, ranks=self.ranks) for s in part.shards) * part.block.repeat
            if part.shards:
                walk.alloc(
                    f"weights/{part.block.path}",
                    numel * self.width,
                    Reason(
                        "sum of ceil(num_params / ranks) * width",
                        {"numel": numel, "ranks": self.ranks, "width": self.width},
                        "zero/partition_parameters.py, _partition_param",
                    ),
                )
        walk.alloc(
            PERSISTENT,
            self._persistent_bytes(),
            Reason(
                "sum of num_params * width over small parameters", {"threshold": self.zero.param_persistence_threshold}, "zero/stage3.py, persistent_parameters"
            ),
        )
        walk.alloc("buffers", self.job.model.buffer_bytes, Reason("rotary frequencies and other buffers of the modules"))
        if self.job.run.task == "train":
            self.states(walk)

    def _persistent_bytes(self) -> Any:
        numel = sum(zero.gathered_numel(p.numel, ranks=self.ranks) for p in self.params if p.persists)
        return (self.ranks > 1) * numel * self.width

    @property
    def shard_numels(self) -> list[Any]:
        """Elements of each trainable parameter's shard."""
        return [zero.shard_numel(p.numel, ranks=self.ranks) for p in self.params if p.trainable]

    @property
    def groups(self) -> list[tuple[int, int]]:
        """Elements and number of parameters of each sub-group that steps."""
        numels = self.shard_numels
        return [(sum(numels[i] for i in group), len(group)) for group in zero.sub_groups(numels, size=self.zero.sub_group_size)]

    @property
    def on_card(self) -> list[tuple[int, int]]:
        """Sub-groups whose optimizer states stay on the card: all, or with a ratio below 1 the first ones (``subgroup_to_device``)."""
        if self.zero.offload_optimizer.device == "none":
            return self.groups
        if self.zero.offload_optimizer.ratio == 1:
            return []
        groups = self.groups
        return groups[: int((1 - self.zero.offload_optimizer.ratio) * len(groups))]

    def states(self, walk: Walk) -> None:
        """The bucket, the gradients' shards, and the optimizer's."""
        if self.zero.contiguous_gradients:
            size = self.zero.reduce_bucket_size
            walk.alloc(
                BUCKET,
                size * self.reduce_width,
                Reason("reduce_bucket_size * width", {"reduce_bucket_size": size, "width": self.reduce_width}, "zero/stage3.py, _setup_for_real_optimizer"),
            )
        total = sum(self.shard_numels)
        if self.zero.offload_optimizer.device == "none":
            walk.alloc(
                SHARDS,
                total * self.gradient_width,
                Reason(
                    "sum of ceil(num_params / ranks) * width", {"numel": total, "width": self.gradient_width}, "zero/stage3.py, grad_partitions_flat_buffer"
                ),
            )
        on_card = self.on_card
        if not on_card:
            return
        if self.config.dtype != self.config.master_dtype:
            self.master(walk, sum(numel for numel, _ in on_card))
        self.optimizer_on_card(walk, [numel for numel, _ in on_card])

    def accumulated(self, walk: Walk) -> None:
        """Nothing: gradients are added to their shards."""

    # ------------------------------------------------------------------ what the coordinator tells
    def gather(self, params: Sequence[Param]) -> None:
        """A buffer for parameters that are gathered."""
        num_bytes = self.gathers * sum(zero.gathered_numel(p.numel, ranks=self._gather_ranks(p)) for p in params) * self.width
        if self.zero.offload_param.device != "none":
            self.walk.touch("buffers/shards from the host", sum(zero.shard_numel(p.numel, ranks=self.ranks) for p in params) * self.width)
        path = GATHERED if len(params) == 1 else BUFFER
        self.walk.alloc(
            path, num_bytes, Reason("sum of padded num_params * width", {"width": self.width}, "zero/partition_parameters.py, all_gather_coalesced")
        )

    def _gather_ranks(self, p: Param) -> Any:
        return self.zero.zero_hpz_partition_size if p in self.secondary else self.ranks

    def copy_out(self, params: Sequence[Param]) -> None:
        """Parameters that were gathered together are copied out of their buffer."""
        self.walk.alloc(
            GATHERED,
            self.gathers * sum(p.numel for p in params) * self.width,
            Reason("sum of num_params * width", {"width": self.width}, "zero/partition_parameters.py, AllGatherCoalescedHandle.wait"),
        )

    def drop_buffer(self, params: Sequence[Param]) -> None:
        """Their buffer goes."""
        self.walk.free(BUFFER, self.gathers * sum(zero.gathered_numel(p.numel, ranks=self._gather_ranks(p)) for p in params) * self.width)

    def release(self, param: Param) -> None:
        """A whole parameter goes; with ZeRO++ a shard among the ranks of a node is kept of it, the first time."""
        numel = param.numel if param.copied else zero.gathered_numel(param.numel, ranks=self._gather_ranks(param))
        self.walk.free(GATHERED, self.gathers * numel * self.width)
        size = self.zero.zero_hpz_partition_size
        if size > 1 and param not in self.secondary:
            self.secondary.add(param)
            self.walk.alloc(
                SECONDARY,
                zero.gathered_numel(param.numel, ranks=self.ranks) // size * self.width,
                Reason("padded num_params / zero_hpz_partition_size * width", {"ranks": size}, "zero/partition_parameters.py, _partition_param_sec"),
            )

    # ------------------------------------------------------------------ around blocks
    def begin_forward(self, walk: Walk) -> None:
        """A pass begins: the model and its body are entered."""
        self.walk = walk
        self.coordinator.begin()
        for p in self.params:
            if p.persists:
                p.status = "whole"
        self._nameless(2)

    def forward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block, module by module."""
        for span, _, calls in self.lines[id(part)].forward:
            walk.apply(span)
            for call in calls:
                self._act(part, i, call)
        if part.block.role == "embedding":
            self._nameless(1)

    def begin_backward(self, walk: Walk) -> None:
        """The model runs back."""
        self._nameless(1)

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs back, module by module."""
        if part.block.role == "norm" and i == 0:
            self._nameless(1)
        place = part.block.repeat - 1 - i
        for span, mark, calls in self.lines[id(part)].backward:
            walk.apply(span)
            for call in calls:
                self._act(part, place, call, running_back=True)
            if mark is not None:
                self.at(walk, part, place, mark)

    def _nameless(self, times: int) -> None:
        for _ in range(times):
            self.coordinator.fetch(NAMELESS, ())

    def _act(self, part: Part, i: int, call: Call, *, running_back: bool = False) -> None:
        kind, _, back = call.kind.partition(" ")
        params = self.users.get((id(part), i, call.module), [])
        name = f"{part.block.path} {i} {call.module}" if call.module else NAMELESS
        if kind == "enter":
            self.coordinator.fetch(name, params, backward=bool(back and params), recompute=running_back and not back)
        else:
            self.coordinator.release(name, params, backward=bool(back))

    # ------------------------------------------------------------------ gradients
    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """It joins the bucket (``reduce_independent_p_g_buckets_and_remove_grads``)."""
        size = self.zero.reduce_bucket_size
        if self.waiting and self.numel_waiting + shard.num_params > size:
            self.reduce(walk)
        if self.zero.contiguous_gradients and self.numel_waiting + shard.num_params <= size:
            free(walk, alive)
        else:
            self.held.append(alive)
        self.waiting.append(shard.num_params)
        self.numel_waiting += shard.num_params

    def reduce(self, walk: Walk) -> None:
        """The bucket is scattered to the gradients' shards (``__reduce_and_partition_ipg_grads``)."""
        if not self.waiting:
            return
        numels, held, self.waiting, self.held, self.numel_waiting = self.waiting, self.held, [], [], 0
        cast = sum(numels) * self.reduce_width if self.reduce_width != self.width else 0
        if self.zero.contiguous_gradients and not self.zero.reduce_scatter and sum(numels) <= self.zero.reduce_bucket_size:
            copied = cast + (self.ranks > 1) * sum(numels) * self.reduce_width
        else:
            copied = cast + zero.scatter_bytes(numels, ranks=self.ranks, width=self.reduce_width)
        if self.reduce_width != self.gradient_width:
            copied = copied + sum(zero.shard_numel(n, ranks=self.ranks) for n in numels) * self.gradient_width
        walk.touch(
            "buffers/bucket laid out by owners",
            copied,
            Reason("padded elements of the bucket * width", {"width": self.reduce_width}, "comm/coalesced_collectives.py, reduce_scatter_coalesced"),
        )
        if self.zero.offload_optimizer.device != "none":
            self._to_host(walk, numels)
        for alive in held:
            free(walk, alive)

    def _to_host(self, walk: Walk, numels: Sequence[Any]) -> None:
        """Each shard's norm in fp64, part by part, and its fp32 copy (``partition_grads``, ``_constant_buffered_norm2``)."""
        largest = max(each(self.ranks, lambda ranks, n=n: zero.shard_numel(n, ranks=ranks)) for n in numels)  # type: ignore[misc]
        walk.touch(
            "gradients/norm in fp64",
            largest * (zero.NORM_BYTES + self.gradient_width),
            Reason("largest shard * 8", {}, "zero/stage3.py, _constant_buffered_norm2"),
        )

    def end_backward(self, walk: Walk) -> None:
        """The rest is reduced; modules whose input took no gradient are released."""
        self.reduce(walk)
        self.coordinator.end_backward()

    # ------------------------------------------------------------------ step
    def step(self, walk: Walk) -> None:
        """Small parameters are cut; norms; each sub-group in turn."""
        walk.free(PERSISTENT, self._persistent_bytes())
        if self.zero.offload_optimizer.device == "none":
            largest = each(self.ranks, lambda ranks: max((zero.shard_numel(p.numel, ranks=ranks) for p in self.params if p.trainable), default=0))
            walk.touch(
                "gradients/norm in fp64", largest * zero.NORM_BYTES, Reason("largest shard * 8", {"largest": largest}, "zero/stage3.py, get_grad_norm_direct")
            )
            if self.config.dtype == "float16":
                total = sum(self.shard_numels)
                walk.touch(
                    "gradients/overflow check",
                    total * (self.gradient_width + 1),
                    Reason("num_params / ranks * (width + 1)", {}, "zero/stage3.py, has_overflow"),
                )
        for numel, count in dict.fromkeys(self.on_card):
            self._step_group(walk, numel, count)
        walk.alloc(PERSISTENT, self._persistent_bytes())

    def _step_group(self, walk: Walk, numel: Any, count: int) -> None:
        """One sub-group: flattened, cast, stepped (``_prepare_fp32_grad_for_sub_group``)."""
        flat, wide = "gradients/flat gradient of a sub-group", "gradients/flat gradient of a sub-group in fp32"
        copied = numel * self.gradient_width if count > 1 else 0
        cast = numel * self.master_width if self.master_width != self.gradient_width else 0
        walk.alloc(
            flat, copied, Reason("elements * width", {"elements": numel, "width": self.gradient_width}, "zero/stage3.py, _prepare_fp32_grad_for_sub_group")
        )
        walk.alloc(wide, cast, Reason("elements * width", {"elements": numel, "width": self.master_width}, "zero/stage3.py, _prepare_fp32_grad_for_sub_group"))
        if self.master_width != self.gradient_width:
            walk.free(flat, copied)
        self.optimizer_step(walk, [numel])
        walk.free(flat, copied if self.master_width == self.gradient_width else 0)
        walk.free(wide, cast)


__all__ = ["Stage3", "Timeline"]
