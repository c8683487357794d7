"""Stage 3's whole parameters: what the coordinator decides, in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from memcalc.code.context import Settings
from memcalc.engine.plan import Part, Plan
from memcalc.engine.strategies.deepspeed.common import Rank
from memcalc.engine.strategies.deepspeed.coordinator import Coordinator, Limits, Param
from memcalc.engine.strategies.deepspeed.modules import NAMELESS, Call, Moment, leaves_of, parameters_of, timeline, views
from memcalc.engine.strategies.deepspeed.packed import scale_bytes, with_packed
from memcalc.engine.strategies.registration import parts_of, registered
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import zero
from memcalc.specs.job import Job

GATHERED = "weights/gathered"
BUFFER = "buffers/all-gather"
EXTERNAL = "weights/gathered head"
SECONDARY = "weights/secondary shards"
PERSISTENT = "weights/kept whole"


class Gathering(Rank):
    """A rank whose parameters are whole only around their uses.

    Several that are gathered at once pass through a buffer that is larger than they are by padding and lives until the last of them is used, so
    that what is gathered ahead may be there twice.

    Attributes:
        stored: of each part, its parameters, packed ones among them.
        lines: of each part, what happens in it.
        params: every parameter of every repetition, in the order in which modules register them.
        users: of each part, repetition and module: the parameters that it uses.
        secondary: parameters of which ZeRO++ keeps a shard among the ranks of a node.
        outer: calls of the model, its body, and what PEFT wraps around them.
        leaves: modules that are taken as one with all below them.
        viewable: of each part, the parameters of which operators save views.
        views: bytes of released parameters that live on, since views of them were saved.
    """

    marks = "modules"

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:
        """DeepSpeed's own linear function, which does not hold on to gathered weights, saves its input in any case (zero/linear.py)."""
        assert job.deepspeed is not None
        return replace(super().settings(job, settings), keeps_linear_inputs=job.deepspeed.zero.memory_efficient_linear)

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        if self.zero.mics_shard_size > 0:
            self.ranks = self.zero.mics_shard_size
        self.gathers: Any = (self.ranks > 1) * 1
        self.outer: tuple[Sequence[Param], ...] = ((),) * (3 if job.run.lora is not None else 2)
        self.leaves = frozenset(path for part in plan.parts for path in leaves_of(part, job.model.model_type, self.zero.leaf_module))
        self.stored = {id(part): with_packed(part, storage=job.run.bnb_4bit_quant_storage) for part in plan.parts}
        self.lines = {id(part): timeline(part, self.leaves) for part in plan.parts}
        self.params: list[Param] = []
        self.users: dict[tuple[int, int, str], list[Param]] = {}
        self.by_path: dict[tuple[int, int, str], Param] = {}
        self.viewable: set[tuple[int, Param]] = set()
        self._make_params()
        knobs = self.zero
        limits = Limits(knobs.prefetch_bucket_size, knobs.max_live_parameters, knobs.max_reuse_distance, sequential=knobs.allgather_sequential)
        self.coordinator = Coordinator(list(self._order()), limits=limits, ledger=self)
        self.secondary: set[Param] = set()
        self.views: dict[Param, Any] = {}
        self.viewed: list[Param] = []
        self.walk = Walk()

    # ------------------------------------------------------------------ who uses what
    def _make_params(self) -> None:
        kept, model_type = 0, self.job.model.model_type
        for part in parts_of(self.plan.parts, model_type):
            stored = self.stored[id(part)]
            owners = parameters_of(stored, self.lines[id(part)])
            for i in range(part.block.repeat):
                made: dict[str, Param] = {}
                for shard in registered(part, stored, model_type=model_type):
                    small = shard.num_params <= self.zero.param_persistence_threshold and kept + shard.num_params <= self.zero.model_persistence_threshold
                    kept += shard.num_params if small else 0
                    made[shard.path] = Param(len(self.params), shard.num_params, trainable=shard.wants_gradient, persists=small, width=shard.width)
                    self.params.append(made[shard.path])
                for module, paths in owners.items():
                    self.users[id(part), i, module] = [made[path] for path in paths]
                self.by_path |= {(id(part), i, path): param for path, param in made.items()}
                self.viewable |= {(id(part), made[path]) for path in views(part, linear=not self.zero.memory_efficient_linear) if path in made}
            if part.block.role == "head" and self.job.model.tied and owners:
                self.users[id(part), 0, max(owners, key=len)].append(self.params[0])
                if not self.zero.memory_efficient_linear:
                    self.viewable.add((id(part), self.params[0]))
        if not self.plan.settings.records:  # without a graph nothing is saved
            self.viewable.clear()

    def _order(self) -> Iterator[Sequence[Param]]:
        """The parameters of each module call of a pass: the model and its body are entered first, rotary angles after the embedding."""
        yield from self.outer
        for part in self.plan.parts:
            for i in range(part.block.repeat):
                yield from self._entered(part, i, self.lines[id(part)].forward)
            if part.block.role == "embedding":
                yield ()
        yield from self.outer[1:]
        for part in reversed(self.plan.parts):
            if part.block.role == "norm":
                yield ()
            for i in reversed(range(part.block.repeat)):
                yield from self._entered(part, i, self.lines[id(part)].backward)

    def _entered(self, part: Part, i: int, moments: Sequence[Moment]) -> Iterator[Sequence[Param]]:
        for _, _, calls in moments:
            for call in calls:
                if call.kind.startswith("enter"):
                    yield self.users.get((id(part), i, call.module), ())

    # ------------------------------------------------------------------ between steps
    def resident(self, walk: Walk) -> None:
        """Shards of the weights, and small parameters whole besides."""
        self.shards(walk)
        self.keep_small(walk)
        if self.job.run.task == "train":
            self.states(walk)

    def shards(self, walk: Walk) -> None:
        """Shards of the weights, where they are on the card, and the buffers."""
        for part in self.plan.parts if self.zero.offload_param.device == "none" else ():
            stored = self.stored[id(part)]
            cut = sum(zero.shard_numel(s.num_params, ranks=self.ranks) * s.width for s in stored) * part.block.repeat
            if stored:
                inputs = {"num_params": sum(s.num_params for s in stored) * part.block.repeat, "ranks": self.ranks}
                why = Reason("sum of ceil(num_params / ranks) * width", inputs, "zero/partition_parameters.py, _partition_param")
                walk.alloc(f"weights/{part.block.path}", cut, why)
        for part in self.plan.parts:
            scales = scale_bytes(part, self.stored[id(part)]) * part.block.repeat
            if scales:
                why = Reason("scales and tables of each weight", {}, "bitsandbytes/functional.py, QuantState, which no engine cuts")
                walk.alloc(f"weights/{part.block.path} (scales)", scales, why)
        walk.alloc("buffers", self.job.model.buffer_bytes, Reason("rotary frequencies and other buffers of the modules"))

    def keep_small(self, walk: Walk) -> None:
        """Small parameters are gathered at the end of the step, and stay whole until the next one."""
        inputs = {"threshold": self.zero.param_persistence_threshold, "width": self.width}
        walk.alloc(PERSISTENT, self.small_bytes, Reason("sum of num_params * width over small parameters", inputs, "zero/stage3.py, persistent_parameters"))

    @property
    def small_bytes(self) -> Any:
        """Of small parameters, whole."""
        return self.gathers * sum(self.padded(p) * p.width for p in self.params if p.persists)

    def padded(self, p: Param) -> Any:
        """Elements of what a parameter is gathered into; from the shards of a node's ranks where those are there."""
        return zero.gathered_numel(p.numel, ranks=self.zero.zero_hpz_partition_size if p in self.secondary else self.ranks)

    # ------------------------------------------------------------------ what the coordinator tells
    def gather(self, params: Sequence[Param]) -> None:
        """A buffer for parameters that are gathered; from the host, their shards first."""
        if self.zero.offload_param.device != "none":
            shards = sum(zero.shard_numel(p.numel, ranks=self.ranks) * p.width for p in params)
            self.walk.touch("buffers/shards from the host", shards, Reason("sum of ceil(num_params / ranks) * width", {"width": self.width}))
        path = GATHERED if len(params) == 1 else BUFFER
        why = Reason("sum of padded num_params * width", {"width": self.width}, "zero/partition_parameters.py, all_gather_coalesced")
        self.walk.alloc(path, self.gathers * sum(self.padded(p) * p.width for p in params), why)

    def copy_out(self, params: Sequence[Param]) -> None:
        """Parameters that were gathered together are copied out of their buffer."""
        why = Reason("sum of num_params * width", {"width": self.width}, "zero/partition_parameters.py, AllGatherCoalescedHandle.wait")
        self.walk.alloc(GATHERED, self.gathers * sum(p.numel * p.width for p in params), why)

    def drop_buffer(self, params: Sequence[Param]) -> None:
        """Their buffer goes."""
        self.walk.free(BUFFER, self.gathers * sum(self.padded(p) * p.width for p in params))

    def release(self, param: Param) -> None:
        """A whole parameter goes; with ZeRO++ a shard among the ranks of a node is kept of it, the first time."""
        num_bytes = self.gathers * (param.numel if param.copied else self.padded(param)) * param.width
        self.keep_secondary(self.walk, param)
        if param in self.viewed:
            self.views[param] = num_bytes
        else:
            self.walk.free(GATHERED, num_bytes)

    def keep_secondary(self, walk: Walk, param: Param) -> None:
        """A shard among the ranks of a node, until the step ends."""
        size = self.zero.zero_hpz_partition_size
        if size > 1 and param not in self.secondary:
            why = Reason("padded num_params / zero_hpz_partition_size * width", {"ranks": size}, "zero/partition_parameters.py, _partition_param_sec")
            walk.alloc(SECONDARY, self.secondary_bytes(param), why)
            self.secondary.add(param)

    def secondary_bytes(self, param: Param) -> Any:
        """Of that shard."""
        size = self.zero.zero_hpz_partition_size
        return zero.gathered_numel(param.numel, ranks=self.ranks) // size * param.width if size > 1 else 0

    def cut_small(self, walk: Walk) -> None:
        """Small parameters are cut at the begin of the step."""
        small = [p for p in self.params if p.persists]
        held = self.small_bytes
        for p in small:
            self.keep_secondary(walk, p)
        walk.free(PERSISTENT, held)

    # ------------------------------------------------------------------ around blocks
    def begin_forward(self, walk: Walk) -> None:
        """A pass begins: the model and its body are entered."""
        self.walk = walk
        self.coordinator.begin()
        self._hold_external()
        for p in self.params:
            if p.persists:
                p.status = "whole"
        self._nameless(len(self.outer))

    def forward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block, module by module."""
        for span, _, calls in self.lines[id(part)].forward:
            walk.apply(span)
            for call in calls:
                self._act(part, i, call)
        if part.block.role == "embedding":
            self._nameless(1)

    def end_forward(self, walk: Walk) -> None:
        """The model is left."""
        self.let_external_go()

    def begin_backward(self, walk: Walk) -> None:
        """The model runs back."""
        self._hold_external()
        self._nameless(len(self.outer) - 1)

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

    @property
    def external_bytes(self) -> Any:
        """Of a head's weight that the model's forward takes past its module: an external parameter of the model (``ds_external_parameters``)."""
        part = next((part for part in self.plan.parts if part.block.role == "head"), None)
        if part is None or self.plan.settings.loss != "fused_linear":
            return 0
        own = [param for (at, _, _), param in self.by_path.items() if at == id(part)]
        return self.gathers * sum(self.padded(p) for p in own or self.params[:1] if not p.persists) * self.width

    def _hold_external(self) -> None:
        why = Reason("padded num_params * width", {"width": self.width}, "zero/parameter_offload.py, get_all_parameters with ds_external_parameters")
        self.walk.alloc(EXTERNAL, self.external_bytes, why)

    def let_external_go(self) -> None:
        """When the model is left, either way."""
        self.walk.free(EXTERNAL, self.external_bytes)

    def _nameless(self, times: int) -> None:
        for _ in range(times):
            self.coordinator.fetch(NAMELESS, ())

    def _act(self, part: Part, i: int, call: Call, *, running_back: bool = False) -> None:
        kind, _, back = call.kind.partition(" ")
        params = self.users.get((id(part), i, call.module), [])
        name = f"{part.block.path} {i} {call.module}" if call.module else NAMELESS
        if kind == "enter":
            self.coordinator.fetch(name, params, backward=bool(back and params), recompute=running_back and not back)
            return
        if back:
            if call.module in self.leaves:
                self.leaf_ran_back(self.walk)
            for p in params:
                self.drop_view(p)
        elif running_back or not self.lines[id(part)].is_recomputed:
            self.viewed = [p for p in params if (id(part), p) in self.viewable]
        self.coordinator.release(name, params, backward=bool(back))
        self.viewed = []

    def drop_view(self, p: Param) -> None:
        """What operators had saved of a parameter goes."""
        if p in self.views:
            self.walk.free(GATHERED, self.views.pop(p))

    def leaf_ran_back(self, walk: Walk) -> None:
        """A module that is taken as one has run back, whole."""
