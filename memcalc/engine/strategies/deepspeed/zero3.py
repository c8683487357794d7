"""Stage 3: every parameter is cut over the ranks, and whole only around its uses.

How memory moves in a step (zero/stage3.py, ``DeepSpeedZeroOptimizer_Stage3``; zero/partition_parameters.py):

- between steps: each parameter's shard, the small ones whole besides, a bucket, the shards of all gradients, master weights (of fp32 weights,
  too: the test that is meant to spare them compares a device with a string), optimizer states;
- parameters are gathered and released as `Gathering` says;
- a gradient moves into the bucket; one that does not fit stays where it is. Before a gradient that no longer fits, the bucket is
  reduce-scattered, which lays it out by owners in a copy (``reduce_scatter_coalesced``), and its shards are added to the gradient shards;
- the step takes each sub-group in turn: its gradients flattened, cast to fp32, stepped.
"""

from __future__ import annotations

from typing import Any

from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.result import Term
from memcalc.engine.strategies._marked import free
from memcalc.engine.strategies.deepspeed.common import BUCKET, each
from memcalc.engine.strategies.deepspeed.coordinator import Param
from memcalc.engine.strategies.deepspeed.gathering import PERSISTENT, SECONDARY, Gathering
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import zero
from memcalc.specs.job import Job
from memcalc.tape.span import maximum
from memcalc.tape.tensor import Record
from memcalc.units import GiB

SHARDS = "gradients/shards"
NORM_CHUNK = 250_000_000
"""With offload, norms are taken of at most so many elements at once (stage3.py, ``_constant_buffered_norm2``)."""


class Stage3(Gathering):
    """A rank of which every parameter is a shard.

    Attributes:
        waiting: elements of the gradients in the bucket; `held`: those among them that have stayed where they were.
        of_leaf: gradients of a module that is taken as one, which wait until it is through, by the places of their parameters.
    """

    accumulates_whole = False

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self.waiting: list[Any] = []
        self.held: list[tuple[Record, ...]] = []
        self.of_leaf: list[tuple[Param, tuple[Record, ...]]] = []
        self.numel_waiting = 0

    # ------------------------------------------------------------------ states
    @property
    def offloads(self) -> bool:
        """Whether the optimizer, or most of it, steps on the host."""
        return self.zero.offload_optimizer.device != "none"

    @property
    def shard_numels(self) -> list[Any]:
        """Elements of each trainable parameter's shard."""
        return [zero.shard_numel(p.numel, ranks=self.ranks) for p in self.params if p.trainable]

    @property
    def groups(self) -> list[tuple[Any, int]]:
        """Elements and number of parameters of each sub-group that steps; for an array of ranks, of the largest and of the rest."""
        numels = self.shard_numels
        if not isinstance(self.ranks, int):
            largest = each(self.ranks, lambda ranks: max(self._groups(ranks), default=0))
            return [(largest, 2), (sum(numels) - largest, 2)]
        return [(sum(numels[i] for i in group), len(group)) for group in zero.sub_groups(numels, size=self.zero.sub_group_size)]

    def _groups(self, ranks: int) -> list[int]:
        numels = [int(zero.shard_numel(p.numel, ranks=ranks)) for p in self.params if p.trainable]
        return [sum(numels[i] for i in group) for group in zero.sub_groups(numels, size=self.zero.sub_group_size)]

    @property
    def num_on_card(self) -> int:
        """Sub-groups whose states stay on the card: all, or with a ratio below 1 the first ones (``subgroup_to_device``)."""
        count = len(self.groups)
        return count if not self.offloads else int((1 - self.zero.offload_optimizer.ratio) * count)

    def states(self, walk: Walk) -> None:
        """The bucket, the gradients' shards, master weights and optimizer states."""
        self.buckets(walk)
        on_card = [numel for numel, _ in self.groups[: self.num_on_card]]
        if on_card:
            self.master(walk, sum(on_card))
            self.optimizer_on_card(walk, on_card)
            if not isinstance(self.ranks, int) and self.counts_steps:
                walk.alloc("optimizer/step counters", 4 * (each(self.ranks, lambda ranks: len(self._groups(ranks))) - len(on_card)))
        if on_card and self.offloads:
            why = Reason("elements * width", {"elements": sum(on_card), "width": self.master_width}, "zero/stage3.py, initialize_optimizer_states")
            walk.alloc("gradients/of sub-groups that step on the card", sum(on_card) * self.master_width, why)

    def buckets(self, walk: Walk) -> None:
        """The bucket and the gradients' shards, which stay."""
        if self.zero.contiguous_gradients:
            size = self.zero.reduce_bucket_size
            inputs = {"reduce_bucket_size": size, "width": self.reduce_width}
            walk.alloc(BUCKET, size * self.reduce_width, Reason("reduce_bucket_size * width", inputs, "zero/stage3.py, _setup_for_real_optimizer"))
        if not self.offloads:
            total = sum(self.shard_numels)
            inputs = {"numel": total, "width": self.gradient_width}
            why = Reason("sum of ceil(num_params / ranks) * width", inputs, "zero/stage3.py, grad_partitions_flat_buffer")
            walk.alloc(SHARDS, total * self.gradient_width, why)

    def initialize(self, walk: Walk) -> None:
        """Without ``zero.Init`` the whole model first; then each sub-group's weights are cast and cloned; at last each parameter is gathered once."""
        if self.job.loads_whole:
            whole = Walk()
            super(Gathering, self).initialize(whole)
            walk.touch("weights/whole model", whole.total, Reason("num_params * width", {}, "zero/partition_parameters.py, _convert_to_zero_parameters"))
        self.shards(walk)
        walk.alloc(SECONDARY, sum(self.secondary_bytes(p) for p in self.params))
        groups = [numel for numel, _ in self.groups[: self.num_on_card]]
        for numel in groups:
            walk.alloc("optimizer/cast weights", numel * self.master_width)
            self.master(walk, numel)
            walk.free("optimizer/cast weights", numel * self.master_width)
        largest = each(self.ranks, lambda ranks: max(self._groups(ranks), default=0)) if groups else 0
        walk.touch("gradients/zeros", largest * self.master_width, Reason("largest sub-group * width", {}, "zero/stage3.py, initialize_optimizer_states"))
        self.buckets(walk)
        walk.touch("weights/gathered", self.gathers * max(self.padded(p) * p.width for p in self.params))

    def accumulated(self, walk: Walk) -> None:
        """Nothing: gradients are added to their shards."""

    # ------------------------------------------------------------------ gradients
    def gradient(self, walk: Walk, part: Part, i: int, shard: Shard, alive: tuple[Record, ...]) -> None:
        """It joins the bucket (``reduce_independent_p_g_buckets_and_remove_grads``)."""
        param = self.by_path[id(part), i, shard.path]
        self.drop_view(param)
        if any(shard.path.startswith(f"{leaf}/") for leaf in self.leaves):
            self.of_leaf.append((param, alive))
        else:
            self.into_bucket(walk, param, alive)

    def leaf_ran_back(self, walk: Walk) -> None:
        """All its gradients are reduced now (``reduce_leaf_module_grads``)."""
        gradients, self.of_leaf = sorted(self.of_leaf, key=lambda g: g[0].index), []
        for param, alive in gradients:
            self.into_bucket(walk, param, alive)

    def into_bucket(self, walk: Walk, param: Param, alive: tuple[Record, ...]) -> None:
        """A gradient joins the bucket, after what was there is reduced if both do not fit."""
        size = self.zero.reduce_bucket_size
        if self.waiting and self.numel_waiting + param.numel > size:
            self.reduce(walk)
        if self.zero.contiguous_gradients and self.numel_waiting + param.numel <= size:
            free(walk, alive)
        else:
            self.held.append(alive)
        self.waiting.append(param.numel)
        self.numel_waiting += param.numel

    def reduce(self, walk: Walk) -> None:
        """The bucket is scattered to the gradients' shards (``__reduce_and_partition_ipg_grads``)."""
        if not self.waiting:
            return
        numels, held, self.waiting, self.held, self.numel_waiting = self.waiting, self.held, [], [], 0
        copied = sum(numels) * self.reduce_width if self.reduce_width != self.width else 0
        if self.zero.contiguous_gradients and not self.zero.reduce_scatter and sum(numels) <= self.zero.reduce_bucket_size:
            copied = copied + self.gathers * sum(numels) * self.reduce_width
        else:
            copied = copied + zero.scatter_bytes(numels, ranks=self.ranks, width=self.reduce_width)
        shards = [zero.shard_numel(n, ranks=self.ranks) for n in numels]
        if self.reduce_width != self.gradient_width:
            copied = copied + sum(shards) * self.gradient_width
        why = Reason("padded elements of the bucket * width", {"width": self.reduce_width}, "comm/coalesced_collectives.py, reduce_scatter_coalesced")
        walk.touch("buffers/bucket laid out by owners", copied, why)
        if self.offloads:
            self._to_host(walk, copied, each(self.ranks, lambda ranks: zero.shard_numel(max(numels), ranks=ranks)))
        for alive in held:
            free(walk, alive)

    def _to_host(self, walk: Walk, copied: Any, largest: Any) -> None:
        """Each shard is copied back from the host's buffer, its norm taken in fp64, and cast for the host (``partition_grads``)."""
        chunk = each(largest, lambda numel: min(numel, NORM_CHUNK))
        why = Reason("largest shard * width + min(largest shard, 250e6) * 8", {"largest": largest}, "zero/stage3.py, _offload_grad_partition_at_boundary")
        walk.touch("gradients/norm in fp64", copied + largest * self.gradient_width + chunk * zero.NORM_BYTES, why)

    def end_backward(self, walk: Walk) -> None:
        """The rest is reduced; modules whose input took no gradient are released."""
        self.reduce(walk)
        self.coordinator.end_backward()
        self.let_external_go()

    # ------------------------------------------------------------------ step
    def step(self, walk: Walk) -> None:
        """Small parameters are cut; norms; each sub-group in turn."""
        self.cut_small(walk)
        if not self.offloads:
            self._norms(walk)
        groups = self.groups[: self.num_on_card]
        for numel, count in dict.fromkeys(groups) if isinstance(self.ranks, int) else groups[:1]:
            self._step_group(walk, numel, count)
        self.keep_small(walk)

    def _norms(self, walk: Walk) -> None:
        largest = each(self.ranks, lambda ranks: max((zero.shard_numel(p.numel, ranks=ranks) for p in self.params if p.trainable), default=0))
        why = Reason("largest shard * 8", {"largest": largest}, "zero/stage3.py, get_grad_norm_direct")
        walk.touch("gradients/norm in fp64", largest * zero.NORM_BYTES, why)
        if self.config.dtype == "float16":
            total = sum(self.shard_numels)
            why = Reason("num_params / ranks * (width + 1)", {"numel": total}, "zero/stage3.py, has_overflow")
            walk.touch("gradients/overflow check", total * (self.gradient_width + 1), why)

    def _step_group(self, walk: Walk, numel: Any, count: int) -> None:
        """One sub-group: flattened, cast, stepped (``_prepare_fp32_grad_for_sub_group``); with offload its fp32 gradient is there already."""
        flat, wide = "gradients/flat gradient of a sub-group", "gradients/flat gradient of a sub-group in fp32"
        copied = numel * self.gradient_width if count > 1 and not self.offloads else 0
        casts = self.master_width != self.gradient_width and not self.offloads
        cast = numel * self.master_width if casts else 0
        source = "zero/stage3.py, _prepare_fp32_grad_for_sub_group"
        walk.alloc(flat, copied, Reason("elements * width", {"elements": numel, "width": self.gradient_width}, source))
        walk.alloc(wide, cast, Reason("elements * width", {"elements": numel, "width": self.master_width}, source))
        gone = copied if casts else 0
        walk.free(flat, gone)
        self.optimizer_step(walk, [numel])
        walk.free(flat, copied - gone)
        walk.free(wide, cast)

    # ------------------------------------------------------------------ between steps
    def save(self, walk: Walk) -> None:
        """With ``gather_16bit_weights_on_model_save`` each module's own parameters in turn, whole, on their way to the first rank's host.

        Small parameters are cut before. Without the key every rank writes its shards, and nothing is gathered.

        Source: engine.py, ``_zero3_consolidated_16bit_state_dict``; zero/partition_parameters.py, ``_allgather_params_coalesced``.
        """
        if not self.zero.gather_16bit_weights_on_model_save:
            return
        largest: Any = 0
        for part in self.plan.parts:
            modules: dict[str, list[Any]] = {}
            for s in self.stored[id(part)]:
                modules.setdefault(s.path.rpartition("/")[0], []).append(zero.gathered_numel(s.num_params, ranks=self.ranks) * s.width)
            for numels in modules.values():
                largest = maximum(largest, sum(numels))
        walk.free(PERSISTENT, self.small_bytes)
        walk.touch("checkpoint/gathered module", self.gathers * largest, Reason("largest module", {"largest": largest}, "engine.py"))
        walk.alloc(PERSISTENT, self.small_bytes)

    def notes(self) -> tuple[str, ...]:
        """What stays gathered, what saving does not do, and why the model is whole at first."""
        found = []
        viewed = sum(param.numel * param.width for _, param in self.viewable)
        if viewed > GiB and self.plan.settings.training and self.job.run.recompute != "full":
            found.append(
                f"{viewed / GiB:.2f} GiB of weights stay gathered from forward to backward: operators save views of them (stacked experts, packed values), "
                "which releasing does not free; recompute: full lets them go"
            )
        if self.job.loads_quantised and self.job.run.sharding.zero3_init_flag:
            found.append("transformers builds a quantised model whole on every rank, without zero.Init; a checkpoint in bf16 would load in shards")
        if self.job.run.checkpoint_save and not self.zero.gather_16bit_weights_on_model_save:
            found.append("without stage3_gather_16bit_weights_on_model_save every rank saves its shards, and no weight is gathered")
        return tuple(found)

    # ------------------------------------------------------------------ outside the card
    def host(self) -> tuple[Term, ...]:
        """What offload keeps on the host."""
        from memcalc.engine.strategies.deepspeed.host import stage3_terms

        return stage3_terms(self)
