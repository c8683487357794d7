"""FSDP2 (``torch.distributed.fsdp.fully_shard``): each parameter is cut along its rows; each layer is a group, the rest of the model another.

Where memory is born and dies (torch/distributed/fsdp/_fully_shard, torch 2.13):

- before a group's forward its shards are gathered into one buffer and copied out into the parameters; forward keeps the buffer until the next
  group's parameters are there, so that both gathers can overlap (_fsdp_param_group.py, ``wait_for_unshard``);
- before its backward likewise, but the buffer goes at once, and that of the group that runs back next is made ahead (``_backward_prefetch``);
- after its backward the parameters are freed, the gradients copied into the input of a reduce-scatter in the reduce dtype, and the shard of their
  sum is born; the input is held until the next group has freed its parameters (``post_backward``, ``reduce_scatter_states``);
- the root's gradients wait for the end of backward (_fsdp_state.py, ``_root_post_backward_final_callback``), and so do those of a group whose input
  takes no gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.strategies._fsdp import Sharded
from memcalc.engine.strategies._fsdp_units import Unit, is_layer
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import fsdp
from memcalc.specs.job import Job
from memcalc.tape.span import maximum

BUFFER, CAST = "communication/all-gather buffer", "communication/all-gather input"
INPUT, OUTPUT = "communication/reduce-scatter input", "communication/reduce-scatter output"
REDUCED = "communication/all-reduced gradients"
COLLECTIVES, GROUP = "_fully_shard/_fsdp_collectives.py", "_fully_shard/_fsdp_param_group.py"
OWN_LOSS = ("torchtitan", "torchtune", "litgpt")
"""Code whose loss is the trainer's, taken when the model is through."""
STREAMS = {CAST: "all-gather", BUFFER: "all-gather", OUTPUT: "reduce-scatter", "gradients/shards": "reduce-scatter", REDUCED: "all-reduce"}
"""_fsdp_param_group.py, ``FSDPCommContext``; _fsdp_collectives.py, ``foreach_all_gather`` and ``foreach_reduce``."""


class Engine(Sharded):
    """The first rank: where rows do not divide, it holds the most.

    Attributes:
        root_reshards: whether the root's weights go after forward; where both ends are groups of their own, what is left to the root stays.
        buffer_held: bytes of the all-gather buffer that forward still keeps.
        input_held: bytes of the reduce-scatter input that backward still keeps.
        late: units whose gradients are reduced after the root's, the last of the model first.
        ahead: the unit that the buffer was made for ahead of its backward.
    """

    @property
    def streams(self) -> Mapping[str, str]:
        """What is gathered and what is reduced has streams of its own."""
        return STREAMS

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self.root_reshards = job.run.sharding.reshard_after_forward and not job.run.sharding.fsdp_wrap_ends and job.run.code != "torchtune"
        self.buffer_held: Any = 0
        self.input_held: Any = 0
        self.late: list[Unit] = []
        self.ahead: Unit | None = None

    def groups(self) -> list[tuple[Part, ...]]:
        """Layers; and if asked, the table by itself, and the final norm with the head (torchtune leaves the norm to the root).

        A tied table makes all of these one: the root.
        """
        if not self.job.run.sharding.fsdp_wrap_ends or self.job.model.tied:
            return super().groups()
        parts = [part for part in self.plan.parts if part.shards]
        tail = tuple(part for part in parts if part.block.role in (("head",) if self.job.run.code == "torchtune" else ("norm", "head")))
        return [(part,) for part in parts if is_layer(part) or part.block.role == "embedding"] + ([tail] if tail else [])

    def reshards(self, unit: Unit) -> bool:
        """Whether a unit's weights go after forward; a group that holds the head keeps them, since it runs back at once."""
        return self.job.run.sharding.reshard_after_forward and len({id(unit.opens), id(unit.closes)}) == 1

    # ------------------------------------------------------------------ sizes
    def kept(self, shard: Shard) -> Any:
        """A chunk of its rows, padded."""
        return fsdp.chunk_numel(shard.rows, shard.num_params // shard.rows, ranks=self.group(shard))

    def gathered(self, shard: Shard) -> Any:
        """Elements of a parameter when it is gathered, or prepared for a reduce-scatter."""
        return self.group(shard) * self.kept(shard)

    def gathered_bytes(self, unit: Unit) -> Any:
        """A gathered unit."""
        return sum(self.gathered(s) * s.width for s in unit.shards)

    def buffer_bytes(self, unit: Unit) -> Any:
        """Where a unit's shards arrive."""
        return sum(fsdp.gather_buffer_bytes(self.gathered(s), width=s.width, ranks=self.group(s)) for s in unit.shards)

    # ------------------------------------------------------------------ gathers
    def fetch(self, walk: Walk, unit: Unit) -> None:
        """Gather a unit's shards into the buffer; shards in another dtype, or on the host, are copied first (``foreach_all_gather``)."""
        copied = [s for s in unit.shards if self.offloads or s.width != self.stored(s)]
        cast = sum((self.group(s) > 1) * self.kept(s) * s.width for s in copied)
        walk.alloc(CAST, cast, Reason("sum of ceil(rows / ranks) * row * width", {"ranks": self.ranks}, f"{COLLECTIVES}, _get_param_all_gather_inputs"))
        if self.offloads:
            walk.touch("communication/shard from the host", largest(self.kept(s) * self.stored(s) for s in copied))
        why = Reason("sum of ranks * ceil(rows / ranks) * row * width", {"ranks": self.ranks}, f"{COLLECTIVES}, foreach_all_gather")
        walk.alloc(BUFFER, self.buffer_bytes(unit), why)
        walk.free(CAST, cast)

    def copy_out(self, walk: Walk, unit: Unit) -> None:
        """A unit's whole parameters appear; over one rank they are copied one by one from the shards."""
        why = Reason("sum of ranks * ceil(rows / ranks) * row * width", {"ranks": self.ranks}, "_fully_shard/_fsdp_param.py, alloc_all_gather_outputs")
        walk.alloc(f"weights/gathered {unit.path}", self.gathered_bytes(unit), why)
        walk.touch(CAST, largest((self.group(s) == 1) * self.kept(s) * s.width for s in unit.shards if s.width != self.stored(s)))

    def reshard(self, walk: Walk, unit: Unit) -> None:
        """A unit's whole parameters go."""
        walk.free(f"weights/gathered {unit.path}", self.gathered_bytes(unit))

    # ------------------------------------------------------------------ forward
    def begin_forward(self, walk: Walk) -> None:
        """The root is gathered."""
        self._gather_forward(walk, self.root)

    def forward(self, walk: Walk, part: Part, i: int) -> None:
        """A unit is gathered before its first part and freed after its last."""
        unit = self.units.get(id(part))
        if unit is not None and unit.opens is part:
            self._gather_forward(walk, unit)
        if part.block.role == "head" and self.job.run.code in OWN_LOSS:
            self._drop_buffer(walk)
        walk.apply(part.profile.forward)
        if unit is not None and unit.closes is part and self.reshards(unit):
            self.reshard(walk, unit)

    def _gather_forward(self, walk: Walk, unit: Unit) -> None:
        if unit.shards:
            self.fetch(walk, unit)
            self.copy_out(walk, unit)
            walk.free(BUFFER, self.buffer_held)
            self.buffer_held = self.buffer_bytes(unit)

    def end_forward(self, walk: Walk) -> None:
        """The root is freed, and the last buffer."""
        if self.root_reshards:
            self.reshard(walk, self.root)
        self._drop_buffer(walk)

    def _drop_buffer(self, walk: Walk) -> None:
        walk.free(BUFFER, self.buffer_held)
        self.buffer_held = 0

    # ------------------------------------------------------------------ backward
    def begin_backward(self, walk: Walk) -> None:
        """The root is gathered again, and the last layer ahead."""
        self.ahead = None
        if not self.root.shards:
            return
        if self.root_reshards:
            self.fetch(walk, self.root)
            self.copy_out(walk, self.root)
            walk.free(BUFFER, self.buffer_bytes(self.root))
        self._fetch_ahead(walk, self.last)

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """A unit is gathered, the next one ahead; it runs back, is freed, and its gradients are reduced."""
        unit = self.units.get(id(part))
        if unit is not None and unit.closes is part:
            self._open_backward(walk, unit, self.following(part, i), runs=part.profile.out.requires_grad)
        self.run_back(walk, part)
        if unit is not None and unit.opens is part:
            if self.takes_gradient(part):
                self.reduce(walk, unit)
            elif part.profile.out.requires_grad:
                self.late.append(unit)

    def _fetch_ahead(self, walk: Walk, unit: Unit | None) -> None:
        self.ahead = unit if unit is not None and self.reshards(unit) else None
        if self.ahead is not None:
            self.fetch(walk, self.ahead)

    def _open_backward(self, walk: Walk, unit: Unit, following: Unit | None, *, runs: bool) -> None:
        """A unit that does not run back (a frozen table) leaves the buffer that was made ahead of it for `end_backward`."""
        if not runs:
            self.buffer_held = 0 if self.ahead is None else self.buffer_bytes(self.ahead)
            return
        if self.reshards(unit):
            if self.ahead is None:
                self.fetch(walk, unit)
            self.copy_out(walk, unit)
            walk.free(BUFFER, self.buffer_bytes(unit))
        self._fetch_ahead(walk, following)

    def end_backward(self, walk: Walk) -> None:
        """The root's gradients are reduced, then those that are late; what was kept for the reductions goes."""
        for unit in (self.root, *reversed(self.late)):
            if unit.shards:
                self.reduce(walk, unit)
        self.late = []
        walk.free(INPUT, self.input_held)
        walk.free(BUFFER, self.buffer_held)
        self.input_held = self.buffer_held = 0
        if self.holds_all_reduced:
            walk.free(REDUCED, sum(self.output_bytes(u) * u.repeat for u in self.all_units()))

    # ------------------------------------------------------------------ reductions
    def accumulated(self, walk: Walk) -> None:
        """Gradients of earlier micro-batches: reduced into shards, or whole, in the dtype of the reduction (``to_accumulated_grad_if_needed``)."""
        for unit in self.all_units():
            if self.defers:
                why = Reason("num_params * reduce_dtype", {}, f"{GROUP}, post_backward without reduce_grads")
                walk.alloc(f"gradients/whole {unit.path}", self.whole_bytes(unit.trainable) * unit.repeat, why)
            elif not self.offloads:
                self.keep_shard(walk, unit, self.gradient_bytes(unit) * unit.repeat)

    def whole_bytes(self, shards: Sequence[Shard]) -> Any:
        """Whole gradients that wait for the last micro-batch."""
        return sum(s.num_params * self.reduced(s) for s in shards)

    def output_bytes(self, unit: Unit) -> Any:
        """The shard of a unit's summed gradients, in the reduce dtype."""
        return sum(self.kept(s) * self.reduced(s) for s in unit.trainable)

    @property
    def holds_all_reduced(self) -> bool:
        """Whether each group keeps what it all-reduced over replicas until backward is through, since the gradients are a copy in another dtype."""
        replicated = not (isinstance(self.job.mesh.dp_replicate, int) and self.job.mesh.dp_replicate == 1)
        return replicated and any(self.reduced(s) != self.stored(s) for u in self.all_units() for s in u.trainable)

    def reduce(self, walk: Walk, unit: Unit) -> None:
        """Free the parameters, take up the gradients, leave the shard of their sum (``post_backward``, ``foreach_reduce``).

        The gradient of the parameter registered last is still bound to a loop's variable when the output is made.
        """
        shards = unit.trainable
        if self.defers and not self.accumulates_whole:
            self.drop_gradients(walk, shards)
        self.reshard(walk, unit)
        walk.free(INPUT, self.input_held)
        self.input_held = sum(self.gathered(s) * self.reduced(s) for s in shards)
        if not shards:
            return
        why = Reason("sum of ranks * ceil(rows / ranks) * row * reduce_dtype", {"ranks": self.ranks}, f"{COLLECTIVES}, foreach_reduce")
        walk.alloc(INPUT, self.input_held, why)
        self._drop(walk, unit, shards[:-1])
        self._output(walk, unit)
        self._drop(walk, unit, shards[-1:])

    def _drop(self, walk: Walk, unit: Unit, shards: Sequence[Shard]) -> None:
        if self.defers:
            walk.free(f"gradients/whole {unit.path}", self.whole_bytes(shards))
        else:
            self.drop_gradients(walk, shards)

    def _output(self, walk: Walk, unit: Unit) -> None:
        """The output becomes the gradient, cast where shards are held in another dtype; or it is added to one that is there, or goes to the host."""
        output = self.output_bytes(unit)
        cast = any(self.reduced(s) != self.stored(s) for s in unit.trainable)
        if cast:
            walk.alloc(OUTPUT, output, Reason("sum of ceil(rows / ranks) * row * reduce_dtype", {"ranks": self.ranks}, f"{COLLECTIVES}, foreach_reduce"))
        if self.offloads or (self.accumulating and not self.defers):
            walk.touch("gradients/shard of this micro-batch", self.gradient_bytes(unit))
        else:
            self.keep_shard(walk, unit, self.gradient_bytes(unit))
        if cast:
            walk.free(OUTPUT, output)
            if self.holds_all_reduced:
                walk.alloc(REDUCED, output, Reason("kept until backward is through", {}, f"{GROUP}, AllReduceState"))


class Deferred(Engine):
    """Gradients of all micro-batches but the last wait whole in the parameters, in the dtype that backward makes them in."""

    accumulates_whole = True


def choose(job: Job) -> type[Engine]:
    """Where whole gradients wait in another dtype, those of the last micro-batch are added to them unit by unit; otherwise where each arises."""
    run = job.run
    computed = run.autocast or run.dtype
    waits = run.grad_accum > 1 and not run.sharding.sync_each_batch
    return Deferred if waits and run.sharding.reduce_dtype in (None, computed) else Engine


def largest(values: Iterable[Any]) -> Any:
    """The most of some sizes, 0 of none."""
    most: Any = 0
    for value in values:
        most = maximum(most, value)
    return most
