"""What both versions of PyTorch's fully sharded data parallelism share: who is sharded with whom, in which dtypes, and what stays between steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from memcalc.code.context import Settings
from memcalc.engine.plan import Part, Plan, Shard, by_width
from memcalc.engine.result import Term
from memcalc.engine.strategies._fsdp_units import Unit, is_layer, root_of, unit_of
from memcalc.engine.strategies.base import Strategy, optimizer_states, optimizer_temporaries, other_width, packed_weights, paged_states, weights
from memcalc.engine.walk import Reason, Walk
from memcalc.errors import InputError, ShardingError
from memcalc.formulas.host import pinned_bytes
from memcalc.specs.job import Job
from memcalc.tape.span import maximum
from memcalc.units import DTYPE_BYTES

PINNED = "aten/src/ATen/core/CachingHostAllocator.h, allocate"


class Sharded(Strategy):
    """A rank under fully sharded data parallelism.

    Each layer is a unit, and what is left of the model (table, final norm, head) is the root's. Weights, gradients and optimizer states
    are held in shards; a unit's weights are gathered, in the policy's dtype, while it runs.

    Attributes:
        ranks: among which a unit is sharded.
        units: the unit of each part that is not the root's, by the part's identity.
        root: the rest.
        local: the plan as this rank holds it between steps: shards, in the dtype that the optimizer steps in.
        accumulating: whether earlier micro-batches of the step have left gradients: shards of them, or whole ones where `defers`.
    """

    accumulates_whole = False

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        check(job)
        self.ranks = self.num_ranks()
        self.stored_width = DTYPE_BYTES[job.run.dtype]
        groups = self.groups()
        self.sequence = [unit_of(members) for members in groups]
        self.units = {id(part): unit for unit, members in zip(self.sequence, groups, strict=True) for part in members}
        self.root = root_of([part for part in plan.parts if id(part) not in self.units])
        self._before = {id(after): before for before, after in pairwise(self.sequence)}
        self._behind = {id(before): after for before, after in pairwise(self.sequence)}
        self.accumulating = job.run.grad_accum > 1
        self.defers = self.accumulating and not job.run.sharding.sync_each_batch
        self.local = self.local_plan()

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:  # noqa: ARG003 (the hook's one signature)
        """The policy's dtype is what the gathered weights are in, so all that programs see is in it; ``torch.autocast`` is not involved."""
        return settings if settings.autocast is None else replace(settings, dtype=settings.autocast, autocast=None, casts_weights=True)

    def num_ranks(self) -> Any:
        """Ranks among which a unit is sharded: replicas of the group do not count, ranks that split the sequence do."""
        return self.job.mesh.dp_shard * self.job.mesh.cp

    # ------------------------------------------------------------------ units
    def groups(self) -> list[tuple[Part, ...]]:
        """Parts that share a unit, in the order of the forward pass; parts of none are the root's."""
        return [(part,) for part in self.plan.parts if is_layer(part)]

    def all_units(self) -> tuple[Unit, ...]:
        """Every unit, the root last."""
        return (*self.sequence, self.root)

    def following(self, part: Part, i: int) -> Unit | None:
        """The unit that runs back after the i-th repetition of a part (counted in the order of backward)."""
        unit = self.units[id(part)]
        return unit if i + 1 < part.block.repeat else self._before.get(id(unit))

    def next_forward(self, part: Part, i: int) -> Unit | None:
        """The unit that runs forward after the i-th repetition of a part."""
        unit = self.units[id(part)]
        return unit if i + 1 < part.block.repeat else self._behind.get(id(unit))

    @property
    def last(self) -> Unit | None:
        """The unit that runs back first."""
        return self.sequence[-1] if self.sequence else None

    def takes_gradient(self, part: Part) -> bool:
        """Whether the input of a part takes a gradient, whose arrival tells that the part has run back."""
        i = next(i for i, p in enumerate(self.plan.parts) if p is part)
        before = self.plan.parts[i - 1] if i else part
        made_leaf = self.plan.leaf is not None and before.block.role == "embedding"
        return i > 0 and (made_leaf or before.profile.out.requires_grad)

    # ------------------------------------------------------------------ sizes
    def group(self, shard: Shard) -> Any:
        """Ranks among which one parameter is cut: routed experts only meet those that hold the same ones."""
        mesh = self.job.mesh
        return self.ranks * mesh.tp // (mesh.ep * mesh.etp) if shard.is_expert else self.ranks

    def kept(self, shard: Shard) -> Any:
        """Elements of a parameter that this rank holds."""
        raise NotImplementedError

    def local_plan(self) -> Plan:
        """The parameters as this rank holds and steps them."""
        parts = (replace(part, shards=tuple(replace(s, num_params=self.kept(s), width=self.stored(s)) for s in part.shards)) for part in self.plan.parts)
        return replace(self.plan, parts=tuple(parts), settings=replace(self.plan.settings, dtype=self.job.run.dtype))

    def stored(self, shard: Shard) -> int:
        """Bytes of one element as it is held and stepped; a parameter with a dtype of its own keeps it."""
        return shard.held_width or self.stored_width

    def reduced(self, shard: Shard) -> int:
        """Bytes of one element of its gradient while that is reduced: as said, or as backward makes it."""
        dtype = self.job.run.sharding.reduce_dtype
        return shard.width if dtype is None else DTYPE_BYTES[dtype]

    def shard_bytes(self, unit: Unit) -> Any:
        """This rank's shard of a unit's weights, as stored."""
        return sum(self.kept(s) * self.stored(s) for s in unit.shards)

    def gradient_bytes(self, unit: Unit) -> Any:
        """This rank's shard of a unit's gradients, as they are stepped with."""
        return sum(self.kept(s) * self.stored(s) for s in unit.trainable)

    @property
    def offloads(self) -> bool:
        """Whether shards, gradients and states live on the host."""
        return self.job.run.offload.params is not None

    # ------------------------------------------------------------------ states
    def resident(self, walk: Walk) -> None:
        """Shards of the weights and of the optimizer states, where they live on the card, and the buffers."""
        if not self.offloads:
            for part in self.local.parts:
                for width, num in by_width(part.shards, self.local.width).items() if part.shards else ():
                    weights(walk, part, num * part.block.repeat, width, name=other_width(width, self.local))
        packed_weights(walk, self.plan)
        walk.alloc("buffers", self.job.model.buffer_bytes, Reason("rotary frequencies and other buffers of the modules"))
        if self.job.run.task == "train":
            self.states(walk)

    def states(self, walk: Walk) -> None:
        """Optimizer states of the shards, where they live on the card."""
        if not self.offloads:
            optimizer_states(walk, self.job, self.local)

    def step(self, walk: Walk) -> None:
        """The optimizer steps the shards; on the host, if they are there."""
        if not self.offloads:
            optimizer_temporaries(walk, self.job, self.local)

    def initialize(self, walk: Walk) -> None:
        """Units are sharded one after the other, the root last, around a model that is whole on the card; one that is on the host never is."""
        if self.offloads:
            return
        for unit in self.all_units():
            why = Reason("num_params * width", {"width": self.stored_width}, "the model as it was loaded")
            walk.alloc(f"weights/whole {unit.path}", whole_bytes(self, unit) * unit.repeat, why)
        walk.alloc("buffers", self.job.model.buffer_bytes, Reason("rotary frequencies and other buffers of the modules"))
        for unit in self.all_units():
            walk.repeat(unit.repeat, lambda _, unit=unit: self.shard(walk, unit))  # type: ignore[misc]

    def shard(self, walk: Walk, unit: Unit) -> None:
        """A unit's shards are made, and its whole weights go."""
        why = Reason("num_params / ranks * width", {"ranks": self.ranks, "width": self.stored_width}, "sharded")
        walk.alloc(f"weights/{unit.path}", self.shard_bytes(unit), why)
        walk.free(f"weights/whole {unit.path}", whole_bytes(self, unit))

    def save(self, walk: Walk) -> None:
        """Unit by unit gathered as stored, and each of its tensors cloned into the state dict, which stays on the card unless offloaded.

        Source: torch/distributed/fsdp/_state_dict_utils.py, _common_unshard_post_state_dict_hook; without ``offload_to_cpu``.
        """
        wholes = {id(unit): sum(s.num_params * self.stored(s) for s in unit.shards) for unit in self.all_units()}
        total = sum(wholes[id(unit)] * unit.repeat for unit in self.all_units())
        walk.alloc("checkpoint/full state dict", total, Reason("num_params * stored width", {}, "torch/distributed/fsdp/_state_dict_utils.py"))
        largest: Any = 0
        for whole in wholes.values():
            largest = maximum(largest, whole)
        walk.touch("checkpoint/gathered unit", largest, Reason("largest unit as stored", {}, "torch/distributed/fsdp/_unshard_param_utils.py"))

    def host(self) -> tuple[Term, ...]:
        """Offloaded: shards of weights and gradients, pinned so that copies overlap, and the optimizer states, which are not; else paged states."""
        if not isinstance(self.ranks, int):
            return ()
        if not self.offloads:
            return paged_states(self.job, self.local)
        held, why = self.pinned(trainable=False), "sum of shards, each rounded up to a power of two"
        terms = [Term("host/pinned/weights", sum(map(pinned_bytes, held)), why, {"ranks": self.ranks}, PINNED)]
        if self.job.run.task == "train":
            held = self.pinned(trainable=True)
            terms.append(Term("host/pinned/gradients", sum(map(pinned_bytes, held)), why, {"ranks": self.ranks}, PINNED))
            states = Walk()
            optimizer_states(states, self.job, self.local)
            reasons = states.reasons
            terms += [
                Term(f"host/pageable/{path.removeprefix('optimizer/')}", n, reasons[path].formula, reasons[path].inputs, reasons[path].source)
                for path, n in states.by_path.items()
            ]
        return tuple(terms)

    def pinned(self, *, trainable: bool) -> list[int]:
        """Bytes of each pinned tensor: a shard of every parameter, or of those that take a gradient."""
        return [s.num_params * s.width for s in self.local.shards() for _ in range(s.copies) if s.trainable or not trainable]

    # ------------------------------------------------------------------ gradients
    def keep_shard(self, walk: Walk, unit: Unit, num_bytes: Any) -> None:
        """A shard of a unit's gradients stays."""
        why = Reason("num_params / ranks * width", {"ranks": self.ranks, "width": self.stored_width}, "reduced, in shards")
        walk.alloc(f"gradients/shards of {unit.path}", num_bytes, why)

    def drop_gradients(self, walk: Walk, shards: Iterable[Shard]) -> None:
        """Whole gradients go."""
        for s in shards:
            walk.free(f"gradients/{s.path}", s.num_params * s.width)

    def run_back(self, walk: Walk, part: Part) -> None:
        """One repetition of a block's own backward.

        A tied table's gradient from the head waits for the embedding's, and the two are summed: out of place in the traces, which run under
        a dispatch mode; in place on a card (torch/csrc/autograd/input_buffer.cpp, ``accumulate``).
        """
        walk.apply(part.profile.backward)
        table = self._tied_bytes()
        if part.block.role == "head" and self.accumulates_whole:
            walk.alloc("gradients/tied table's from the head", table, Reason("num_params * width", {}, "torch/csrc/autograd/engine.cpp"))
        elif part.block.role == "embedding":
            walk.touch("gradients/sum of a tied table's", (1 if self.plan.settings.sums_in_place else 2) * table)
            if self.accumulates_whole:
                walk.free("gradients/tied table's from the head", table)

    def _tied_bytes(self) -> Any:
        """The gradient of a table that both ends share; 0 where they do not."""
        if not self.job.model.tied:
            return 0
        ends = (s for part in self.plan.parts if part.block.role == "embedding" for s in part.shards if s.trainable)
        return next((s.num_params * s.width for s in ends), 0)


def whole_bytes(rank: Sharded, unit: Unit) -> Any:
    """A unit's weights before they are sharded."""
    return sum(s.num_params * rank.stored(s) for s in unit.shards)


def check(job: Job) -> None:
    """What either version cannot do is an error that says what it can.

    Raises:
        InputError: offloading in part, or to a disk; a ZeRO stage in the place of the engine's own key.
        ShardingError: replicas that do not divide the ranks.
    """
    asked, offload, mesh = job.run.sharding, job.run.offload, job.mesh
    if offload.params == "nvme" or (offload.optimizer is not None and offload.params is None):
        raise InputError(f"engine {job.engine} moves weights, gradients and optimizer states to the host together: offload.params: cpu", where="offload")
    if job.zero != 3:
        own = "reshard_after_forward: false" if job.engine == "fsdp2" else "fsdp_sharding_strategy: SHARD_GRAD_OP"
        instead = "ddp" if job.zero == 0 else "deepspeed"
        raise InputError(
            f"engine {job.engine} shards weights, as stage 3 does, so zero {job.zero} cannot be; leave zero out ({own} keeps them gathered after forward), "
            f"or use engine {instead}",
            where="sharding.zero",
        )
    if isinstance(mesh.dp, int) and mesh.dp % mesh.dp_replicate:
        able = [d for d in range(1, mesh.dp + 1) if mesh.dp % d == 0]
        raise ShardingError(
            f"dp {mesh.dp} does not divide into dp_replicate {asked.dp_replicate}; it can be {', '.join(map(str, able))}", where="sharding.dp_replicate"
        )
