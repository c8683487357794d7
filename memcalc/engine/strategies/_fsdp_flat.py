"""FSDP1's flat parameters: which there are, how large, what a rank keeps of them, and how they are made.

Where only adapters take a gradient, each is a unit of its own, as PEFT's wrap policy makes it (peft/utils/other.py, ``fsdp_auto_wrap_policy``, which
transformers' Trainer sets): gathered by itself while it runs, so that a layer's unit is its frozen weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from memcalc.components.quantized import packed, packed_values
from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.strategies._fsdp import Sharded
from memcalc.engine.strategies._fsdp_units import Unit
from memcalc.engine.strategies.base import packed_weights
from memcalc.engine.walk import Reason, Walk
from memcalc.errors import ShardingError
from memcalc.formulas import fsdp
from memcalc.specs.job import Job
from memcalc.tape.span import maximum

FLAT_WEIGHTS = "weights/flat parameter"
SOURCE = "torch/distributed/fsdp/_flat_param.py"


class Flat(Sharded):
    """A rank whose units are flat parameters.

    Attributes:
        sharding: the strategy; over one rank torch itself falls back to NO_SHARD.
    """

    def __init__(self, job: Job, plan: Plan) -> None:
        asked = job.run.sharding
        alone = isinstance(job.mesh.dp, int) and job.mesh.dp * job.mesh.cp == 1
        self.sharding = "NO_SHARD" if alone else asked.fsdp_sharding_strategy
        super().__init__(job, plan)

    def groups(self) -> list[tuple[Part, ...]]:
        """Layers; without a wrap policy the root is all."""
        return [] if self.job.run.sharding.fsdp_auto_wrap_policy == "NO_WRAP" else super().groups()

    def num_ranks(self) -> Any:
        """Ranks that share a unit: those of one replica under hybrid sharding, one where nothing is sharded.

        Raises:
            ShardingError: replicas under a strategy that has none.
        """
        mesh = self.job.mesh
        if "HYBRID" not in self.sharding and self.job.run.sharding.dp_replicate > 1:
            raise ShardingError(
                f"{self.sharding} has no replicas: with dp_replicate, fsdp_sharding_strategy is HYBRID_SHARD or _HYBRID_SHARD_ZERO2",
                where="sharding.dp_replicate",
            )
        if self.sharding == "NO_SHARD":
            return 1
        return (mesh.dp_shard if "HYBRID" in self.sharding else mesh.dp) * mesh.cp

    # ------------------------------------------------------------------ what the strategy does
    @property
    def is_sharded(self) -> bool:
        """Whether weights are shards between uses."""
        return self.sharding != "NO_SHARD"

    @property
    def is_mixed(self) -> bool:
        """Whether the policy's dtype is another than the stored one."""
        return self.plan.width != self.stored_width

    @property
    def copies(self) -> bool:
        """Whether whole weights are copied to be computed with: from the host, or into the policy's dtype."""
        return not self.is_sharded and (self.is_mixed or self.offloads)

    @property
    def regathers(self) -> bool:
        """Whether a layer's computing weights are made again for backward."""
        return self.sharding in ("FULL_SHARD", "HYBRID_SHARD") or self.copies

    @property
    def stays_gathered(self) -> bool:
        """Whether weights are still gathered from the micro-batch before: without a reduction, those that forward does not free stay."""
        return self.defers and self.is_sharded and not self.regathers

    # ------------------------------------------------------------------ sizes
    def flat(self, shards: Iterable[Shard]) -> list[tuple[Any, Shard]]:
        """The flat parameters that some parameters make, with one of each: one for each dtype, and for each adapter."""
        kinds: dict[tuple[int, int, str], list[Shard]] = {}
        for s in shards:
            alone = s.path if s.trainable and self.job.run.lora is not None else ""
            kinds.setdefault((s.width, self.stored(s), alone), []).append(s)
        return [(fsdp.flat_numel((s.num_params for s in members), width=width, ranks=self.ranks), members[0]) for (width, *_), members in kinds.items()]

    def gathered_bytes(self, unit: Unit) -> Any:
        """A unit's weights as it computes with them, where they are not those that are stored; adapters are not among them."""
        together = [s for s in unit.shards if not s.trainable] if self.has_adapters(unit) else unit.shards
        return sum(numel * s.width for numel, s in self.flat(together)) + self.values_bytes(unit) if self.is_sharded or self.copies else 0

    def values_bytes(self, unit: Unit) -> int:
        """A unit's packed values, where they are filed under the dtype of its other weights, and so part of its flat parameter."""
        storage = self.job.run.bnb_4bit_quant_storage
        if unit.opens is None or storage != self.job.run.dtype or not self.is_sharded:
            return 0
        return sum(packed_values(part.block.module) for part in self.plan.parts if self.units.get(id(part)) is unit)

    def packed_weights(self, walk: Walk) -> None:
        """What of packed weights every rank holds whole: all, or, where their values are spread, scales and tables."""
        if not any(self.values_bytes(unit) for unit in self.sequence):
            packed_weights(walk, self.plan)
            return
        for part in self.plan.parts:
            rest = sum(packed(part.block.module).values())
            if id(part) in self.units:
                rest -= packed_values(part.block.module)
            why = Reason("scales and tables of each weight", {}, "bitsandbytes/functional.py, QuantState, which no engine cuts")
            walk.alloc(f"weights/{part.block.path} (scales)", rest * part.block.repeat, why)

    def has_adapters(self, unit: Unit) -> bool:
        """Whether some but not all of its parameters take a gradient, or would."""
        return 0 < len(unit.flat_trainable) < len(unit.shards)

    def flat_gradient_bytes(self, shards: Iterable[Shard]) -> Any:
        """The flat gradients of some parameters as backward makes them."""
        return sum(numel * s.width for numel, s in self.flat(shards))

    def shard_bytes(self, unit: Unit) -> Any:
        """This rank's shard of the flat parameters."""
        values = -(-self.values_bytes(unit) // self.ranks)
        return sum(numel // self.ranks * self.stored(s) for numel, s in self.flat(unit.shards)) + values

    def gradient_bytes(self, unit: Unit) -> Any:
        """This rank's shard of a unit's flat gradients."""
        return self.gradient_shard_bytes(unit.flat_trainable)

    def gradient_shard_bytes(self, shards: Iterable[Shard]) -> Any:
        """This rank's shard of the flat gradients of some parameters."""
        return sum(numel // self.ranks * self.stored(s) for numel, s in self.flat(shards))

    def local_plan(self) -> Plan:
        """The parts of parameters that lie in the first rank's shard."""
        parts = [replace(part, shards=self._in_shard(self.units[id(part)])) for part in self.plan.parts if id(part) in self.units]
        rest = next((part for part in self.plan.parts if id(part) not in self.units), None)
        if rest is not None:
            parts.append(replace(rest, block=replace(rest.block, path=self.root.path, repeat=1), shards=self._in_shard(self.root)))
        return replace(self.plan, parts=tuple(parts), settings=replace(self.plan.settings, dtype=self.job.run.dtype))

    def _in_shard(self, unit: Unit) -> tuple[Shard, ...]:
        found = []
        graded = unit.flat_trainable
        for members in (graded, [s for s in unit.shards if s not in graded]):
            end = sum(numel // self.ranks for numel, _ in self.flat(members))
            starts = fsdp.flat_offsets([s.num_params for s in members], width=self.plan.width)
            for s, start in zip(members, starts, strict=True):
                beyond = maximum(start + s.num_params - end, 0)
                found.append(replace(s, num_params=maximum(s.num_params - beyond, 0), width=self.stored(s)))
        return tuple(found)

    # ------------------------------------------------------------------ construction
    def shard(self, walk: Walk, unit: Unit) -> None:
        """A unit's parameters are copied into a flat one, of which this rank keeps a copy of its part (_init_utils.py, ``_init_param_handle_from_params``)."""
        flat = self.shard_bytes(unit) * self.ranks
        walk.alloc(FLAT_WEIGHTS, flat, Reason("flat_numel * width", {"width": self.stored_width}, f"{SOURCE}, flatten_tensors_into_flat_param"))
        if not self.is_sharded:
            walk.free(FLAT_WEIGHTS, flat)
        super().shard(walk, unit)
        if self.is_sharded:
            walk.free(FLAT_WEIGHTS, flat)

    def pinned(self, *, trainable: bool) -> list[int]:
        """Bytes of each pinned tensor: a unit's shard."""
        whole = self.gradient_bytes if trainable else self.shard_bytes
        return [whole(unit) for unit in self.all_units() for _ in range(unit.repeat)]
