"""FSDP1 (``torch.distributed.fsdp.FullyShardedDataParallel``, ``use_orig_params``): each layer's parameters are one flat one, the rest of the model another.

Where memory is born and dies (torch/distributed/fsdp, torch 2.13):

- before a unit's forward its flat parameter is gathered in place, in the policy's dtype; after it, it is freed, but the root's is kept
  (_runtime_utils.py, ``_post_forward_reshard``);
- before its backward likewise; with ``BACKWARD_PRE`` the next unit's is gathered then too, with ``BACKWARD_POST`` when this one's is freed;
- the gradients of its parameters wait in the graph until all are there and are copied into one flat gradient (the backward of the ``split`` in
  _flat_param.py, ``_get_unflat_views_aligned``); that is cast to the reduce dtype and reduced into a shard (``_post_backward_hook``);
- after ``zero_grad`` the shards of the gradients stay until the next forward, since the flat parameters still hold them
  (_flat_param.py, ``_reset_flat_param_grad_info_if_needed``). So they are there at ``start``.

Without a reduction (``no_sync``) the flat gradient waits whole, and weights that are not freed after forward stay gathered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memcalc.code.context import Settings
from memcalc.engine.flow import STREAM_GRADIENT
from memcalc.engine.plan import Part, Plan, Shard
from memcalc.engine.strategies._fsdp_flat import SOURCE, Flat
from memcalc.engine.strategies._fsdp_units import Unit
from memcalc.engine.walk import Reason, Walk
from memcalc.specs.job import Job
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES

FLAT, CAST = "gradients/flat gradient", "communication/flat gradient in the reduce dtype"
LOW, OUTPUT = "communication/shard in the policy's dtype", "communication/reduce-scatter output"
HELD = ("activations/inputs of layers that ran back", "activations/gradients of inputs of layers that ran back")
RUNTIME = "torch/distributed/fsdp/_runtime_utils.py"
STREAMS = {"weights/gathered": "unshard", LOW: "pre-unshard", CAST: "post-backward", OUTPUT: "post-backward", "gradients/shards": "post-backward"}
"""_runtime_utils.py, ``_init_streams``, ``_unshard`` and ``_post_backward_hook``."""


class Engine(Flat):
    """One rank.

    Attributes:
        ahead: whether the unit that runs next is gathered already.
        waiting: a unit that has run back, but whose gradients are not flat yet.
    """

    @property
    def streams(self) -> Mapping[str, str]:
        """What is gathered and what is reduced has streams of its own."""
        return STREAMS

    def __init__(self, job: Job, plan: Plan) -> None:
        super().__init__(job, plan)
        self.prefetch, self.forward_prefetch = job.run.sharding.fsdp_backward_prefetch, job.run.sharding.fsdp_forward_prefetch
        self.ahead = False
        self.waiting: Unit | None = None

    # ------------------------------------------------------------------ states
    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:
        """As for both versions; and with adapters, marks in the ledger where a gradient is complete."""
        found = super().settings(job, settings)
        return found if job.run.lora is None else replace(found, marks="gradients")

    def resident(self, walk: Walk) -> None:
        """Shards of weights, of optimizer states, and of the last step's gradients; the buffers, in the policy's dtype."""
        for unit in self.all_units() if not self.offloads else ():
            why = Reason("flat_numel / ranks * width", {"ranks": self.ranks, "width": self.stored_width}, f"{SOURCE}, shard")
            walk.alloc(f"weights/{unit.path}", self.shard_bytes(unit) * unit.repeat, why)
        self.packed_weights(walk)
        buffers = self.job.model.buffer_bytes
        if self.is_mixed:
            buffers = buffers * self.plan.width // DTYPE_BYTES["float32"]
        walk.alloc("buffers", buffers, Reason("rotary frequencies and other buffers of the modules"))
        if self.job.run.task == "train":
            self.states(walk)
            for unit in self.all_units() if not self.offloads else ():
                self.keep_shard(walk, unit, self.gradient_bytes(unit) * unit.repeat)

    def accumulated(self, walk: Walk) -> None:
        """The shards of earlier micro-batches' gradients are those that `resident` has brought; or they wait whole, and weights may be gathered still."""
        if not self.defers:
            return
        self._drop_last_gradients(walk)
        for unit in self.all_units():
            why = Reason("flat_numel * width", {"width": self.plan.width}, f"{RUNTIME}, _post_backward_hook without a reduction")
            walk.alloc(f"gradients/whole {unit.path}", self.flat_gradient_bytes(unit.flat_trainable) * unit.repeat, why)
            if self.stays_gathered:
                walk.alloc(f"weights/gathered {unit.path}", self.gathered_bytes(unit) * unit.repeat)

    def _drop_last_gradients(self, walk: Walk) -> None:
        for unit in self.all_units() if not self.offloads else ():
            walk.free(f"gradients/shards of {unit.path}", self.gradient_bytes(unit) * unit.repeat)

    def notes(self) -> tuple[str, ...]:
        """What surprises at ``start``."""
        if self.job.run.task != "train" or self.offloads:
            return ()
        return ("FSDP1 lets go of the last step's gradients when the next forward begins, not at zero_grad: they are there between steps",)

    # ------------------------------------------------------------------ forward
    def begin_forward(self, walk: Walk) -> None:
        """The last step's gradients go, if no micro-batch has added to them; the root is gathered."""
        if self.job.run.task == "train" and not self.accumulating:
            self._drop_last_gradients(walk)
        self.ahead = False
        self._gather_forward(walk, self.root, self.sequence[0] if self.sequence else None)

    def forward(self, walk: Walk, part: Part, i: int) -> None:
        """A unit is gathered, runs, and is freed."""
        unit = self.units.get(id(part))
        if unit is not None:
            self._gather_forward(walk, unit, self.next_forward(part, i))
        walk.apply(part.profile.forward)
        if unit is not None and self.regathers:
            self.free(walk, unit)

    def _gather_forward(self, walk: Walk, unit: Unit, following: Unit | None) -> None:
        if self.stays_gathered:
            return
        if not self.ahead:
            self.gather(walk, unit)
        self.ahead = self.forward_prefetch and following is not None
        if self.ahead and following is not None:
            self.gather(walk, following)

    def end_forward(self, walk: Walk) -> None:
        """The root stays, unless it is a mere copy in another dtype."""
        if not self.is_sharded:
            self.free(walk, self.root)

    def gather(self, walk: Walk, unit: Unit) -> None:
        """A unit's flat parameter, from shards that are cast first, or copied from the host (``pre_unshard``, ``unshard``)."""
        copied = self.is_sharded and (self.is_mixed or self.offloads)
        low = sum(numel // self.ranks * s.width for numel, s in self.flat(unit.shards)) if copied else 0
        walk.alloc(LOW, low, Reason("flat_numel / ranks * width", {"ranks": self.ranks}, f"{SOURCE}, pre_unshard"))
        if self.is_mixed and self.offloads:
            walk.touch("communication/shard from the host", self.shard_bytes(unit))
        why = Reason("flat_numel * width", {"width": self.plan.width}, f"{SOURCE}, _alloc_padded_unsharded_flat_param")
        walk.alloc(f"weights/gathered {unit.path}", self.gathered_bytes(unit), why)
        walk.free(LOW, low)

    def free(self, walk: Walk, unit: Unit) -> None:
        """What `gather` made goes."""
        walk.free(f"weights/gathered {unit.path}", self.gathered_bytes(unit))

    # ------------------------------------------------------------------ backward
    def begin_backward(self, walk: Walk) -> None:
        """The root is there, or made again; the last layer is gathered ahead."""
        self.ahead = False
        if not self.is_sharded:
            self.gather(walk, self.root)
        if self.prefetch == "BACKWARD_PRE":
            self._gather_ahead(walk, self.last)

    def _gather_ahead(self, walk: Walk, unit: Unit | None) -> None:
        self.ahead = unit is not None and self.regathers
        if unit is not None and self.regathers:
            self.gather(walk, unit)

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """A unit is gathered, unless it was ahead, and the next one ahead; it runs back, is freed, and its gradients are reduced.

        With forward prefetching the ``split`` that made a unit's weights was recorded before the unit before it ran, so in backward that one
        runs first, and the gradients and weights of this one wait for it.
        """
        unit = self.units.get(id(part))
        if unit is None:
            self.run_back(walk, part)
            self._finish_waiting(walk)
            return
        following = self.following(part, i)
        if self.regathers and not self.ahead:
            self.gather(walk, unit)
        self.ahead = False
        if self.has_adapters(unit):
            self._run_back_adapted(walk, unit, part, following)
            self._hold_input(walk, part)
            return
        if self.prefetch == "BACKWARD_PRE":
            self._gather_ahead(walk, following)
        self.run_back(walk, part)
        self._finish_waiting(walk)
        if self.forward_prefetch:
            self.waiting = unit
        else:
            self._finish(walk, unit, following)

    def _run_back_adapted(self, walk: Walk, unit: Unit, part: Part, following: Unit | None) -> None:
        """A frozen layer with adapters: each of these is reduced where its gradient arises, and the last one prefetches the next layer."""
        known = {f"gradients/{s.path}": s for s in unit.trainable}
        last = next((mark for _, mark in reversed(part.profile.backward_steps) if mark is not None and mark.path in known), None)
        for span, mark in part.profile.backward_steps:
            walk.apply(span)
            if mark is None or mark.path not in known:
                continue
            if mark is last and self.prefetch == "BACKWARD_PRE":
                self._gather_ahead(walk, following)
            self._flatten(walk, unit, [known[mark.path]])
            self._reduce(walk, unit, [known[mark.path]])
        self.free(walk, unit)
        if self.prefetch == "BACKWARD_POST":
            self._gather_ahead(walk, following)

    def _hold_input(self, walk: Walk, part: Part) -> None:
        """The input of a frozen layer that a reentrant checkpoint ran again, and its gradient, stay until backward is over.

        The checkpoint makes the input a leaf. FSDP hangs a hook on it, to free the layer's weights when its gradient is there
        (_runtime_utils.py, ``_register_post_backward_reshard_only_hook``); the hook holds the leaf's gradient accumulator
        (torch/autograd/graph.py, ``register_multi_grad_hook``), and that the leaf, until ``_finalize_params`` takes the hook away.
        """
        why = Reason("batch * seq_len * hidden_size * width", {}, f"{RUNTIME}, _register_post_backward_reshard_only_hook")
        held = self._held_bytes(part)
        walk.alloc(HELD[0], held, why)
        walk.keep(STREAM_GRADIENT, HELD[1], held, why)

    def _held_bytes(self, part: Part) -> Any:
        unit, run = self.units.get(id(part)), self.job.run
        if unit is None or not (run.use_reentrant and run.recompute == "full" and self.has_adapters(unit)):
            return 0
        flow = part.profile.out
        return numel(flow.shape) * DTYPE_BYTES[flow.dtype]

    def _finish(self, walk: Walk, unit: Unit, following: Unit | None) -> None:
        self._flatten(walk, unit, unit.flat_trainable)
        self.free(walk, unit)
        if self.prefetch == "BACKWARD_POST":
            self._gather_ahead(walk, following)
        self._reduce(walk, unit, unit.flat_trainable)

    def _finish_waiting(self, walk: Walk) -> None:
        if self.waiting is not None:
            self._finish(walk, self.waiting, None)
            self.waiting = None

    def end_backward(self, walk: Walk) -> None:
        """The root's turn, when the table's gradient is there. Gradients on the host were copied there; the card's go only now (``_finalize_params``)."""
        self._finish_waiting(walk)
        self._finish(walk, self.root, None)
        for path in HELD:
            walk.free(path, sum(self._held_bytes(part) * part.block.repeat for part in self.plan.parts))
        if self.offloads and (self.defers or not self.accumulating):
            for unit in self.all_units():
                walk.free(f"gradients/shards of {unit.path}", self.gradient_bytes(unit) * unit.repeat)

    # ------------------------------------------------------------------ reductions
    def _flatten(self, walk: Walk, unit: Unit, shards: list[Shard]) -> None:
        """The flat gradient appears; where one waits already, it is added to that."""
        flat = self.flat_gradient_bytes(shards)
        walk.alloc(FLAT, flat, Reason("flat_numel * width", {"width": self.plan.width}, "backward of torch.split"))
        self.drop_gradients(walk, [s for s in shards if s.trainable])
        if self.defers:
            walk.free(f"gradients/whole {unit.path}", flat)

    def _reduce(self, walk: Walk, unit: Unit, shards: list[Shard]) -> None:
        """The flat gradient, cast, is reduced into a shard and cast back; added to one that is there, or on its way to the host."""
        flats = self.flat(shards)
        cast = sum(numel * self.reduced(s) for numel, s in flats if self.reduced(s) != s.width)
        walk.alloc(CAST, cast, Reason("flat_numel * reduce_dtype", {}, f"{RUNTIME}, _post_backward_hook"))
        if self.is_sharded:
            output = sum(numel // self.ranks * self.reduced(s) for numel, s in flats if self.reduced(s) != self.stored(s))
            walk.alloc(OUTPUT, output, Reason("flat_numel / ranks * reduce_dtype", {"ranks": self.ranks}, f"{RUNTIME}, _get_reduce_scatter_tensors"))
            self._keep(walk, unit, shards)
            walk.free(OUTPUT, output)
            walk.free(CAST, cast)
            walk.free(FLAT, self.flat_gradient_bytes(shards))
        else:
            self._keep_whole(walk, unit, shards, cast)

    def _keep(self, walk: Walk, unit: Unit, shards: list[Shard]) -> None:
        if self.accumulating and not self.defers:
            walk.touch("gradients/shard of this micro-batch", self.gradient_shard_bytes(shards))
        else:
            self.keep_shard(walk, unit, self.gradient_shard_bytes(shards))

    def _keep_whole(self, walk: Walk, unit: Unit, shards: list[Shard], cast: Any) -> None:
        """Unsharded, the flat gradient itself or its last cast stays (``_reduce_grad_no_shard``)."""
        copied = any(self.reduced(s) != self.stored(s) for s in shards)
        widened = any(self.reduced(s) != s.width for s in shards)
        if copied:
            self._keep(walk, unit, shards)
        walk.free(CAST, cast)
        if not copied and widened:
            self._keep(walk, unit, shards)
        walk.free(FLAT, self.flat_gradient_bytes(shards))
        if not copied and not widened:
            self._keep(walk, unit, shards)
