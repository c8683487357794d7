"""What every sharding engine answers; the defaults are one card's: everything resident, nothing gathered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memcalc.code.context import Settings
from memcalc.components import Conv1D
from memcalc.components.quantized import packed
from memcalc.engine.plan import Part, Plan, Shard, by_width
from memcalc.engine.result import Term
from memcalc.engine.walk import Reason, Walk
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.units import DTYPE_BYTES

if TYPE_CHECKING:
    from memcalc.engine.optimizers import Stepped


class Strategy:
    """One rank's share of states and the events around its blocks.

    Args:
        job: what was asked.
        plan: this rank's blocks, recorded as `keep_gradients` of the class wants them.
    """

    keep_gradients = True
    """Whether a parameter's gradient stays whole where backward makes it, to the end of the step."""
    uniform = True
    """Whether all but the first and last of a run of equal blocks change memory alike, so that those between need not be walked through."""
    accumulates_whole = True
    """Whether a further micro-batch finds whole gradients there, so that each new one is added where it arises and dropped."""
    drops_sent = False
    """Whether a pipeline stage lets go of its output once it is sent (Megatron-core's ``deallocate_pipeline_outputs``)."""

    @property
    def streams(self) -> Mapping[str, str]:
        """By what a path begins with, the CUDA stream that its tensors are made on, where that is not the computation's."""
        return {}

    @classmethod
    def settings(cls, job: Job, settings: Settings) -> Settings:  # noqa: ARG003 (a hook: others decide by the job)
        """What programs see, where the engine has a say in it: the dtype of the weights that they compute with."""
        return settings

    @classmethod
    def communicators(cls, job: Job) -> dict[str, Any]:
        """Ranks of each NCCL communicator: one of a mesh dimension."""
        mesh = job.mesh
        return {"dp": mesh.dp, "tp": mesh.tp, "pp": mesh.pp, "cp": mesh.cp, "ep": mesh.ep}

    def __init__(self, job: Job, plan: Plan) -> None:
        self.job, self.plan = job, plan

    # ------------------------------------------------------------------ states
    def resident(self, walk: Walk) -> None:
        """What is there between steps: weights, buffers, optimizer states."""
        whole_model(walk, self.job, self.plan)
        if self.job.run.task == "train":
            self.states(walk)

    def states(self, walk: Walk) -> None:
        """Optimizer states."""
        optimizer_states(walk, self.job, self.plan)

    def accumulated(self, walk: Walk) -> None:
        """Gradients that earlier micro-batches of the same step have left."""
        for part in self.plan.parts:
            for s in part.shards:
                if s.trainable:
                    walk.alloc(f"gradients/{s.path}", s.num_params * part.block.repeat * s.width)

    def behind(self, walk: Walk) -> None:
        """What the backward pass before has left, which goes while the next forward pass runs; a part of what is resident."""

    # ------------------------------------------------------------------ around blocks
    def begin_forward(self, walk: Walk) -> None:
        """Before the first block."""

    def forward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs forward."""
        walk.apply(part.profile.forward)

    def end_forward(self, walk: Walk) -> None:
        """After the loss."""

    def begin_backward(self, walk: Walk) -> None:
        """Before the gradient of the loss."""

    def backward(self, walk: Walk, part: Part, i: int) -> None:
        """One repetition of a block runs back; `i` counts in the order of backward."""
        walk.apply(part.profile.backward)

    def end_backward(self, walk: Walk) -> None:
        """After the last gradient."""

    def step(self, walk: Walk) -> None:
        """The optimizer's own temporaries."""
        optimizer_temporaries(walk, self.job, self.plan)

    # ------------------------------------------------------------------ before the first step
    def initialize(self, walk: Walk) -> None:
        """What the engine's construction around a loaded model needs; torch's optimizers make their states in the first step."""
        whole_model(walk, self.job, self.plan)

    # ------------------------------------------------------------------ between steps
    def save(self, walk: Walk) -> None:
        """What saving the model takes on the card; where a rank holds its weights whole, a state dict only refers to them."""

    # ------------------------------------------------------------------ other ranks
    def others(self) -> tuple[int, ...]:
        """Data-parallel ranks that hold other things than the first one, and may hold more."""
        return ()

    # ------------------------------------------------------------------ in words
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how this engine holds things."""
        return ()

    # ------------------------------------------------------------------ outside the card
    def host(self) -> tuple[Term, ...]:
        """What this rank holds in the host's memory."""
        return paged_states(self.job, self.plan)


def whole_model(walk: Walk, job: Job, plan: Plan) -> None:
    """All weights, whole but for tensor and expert parallelism, and the buffers."""
    for part in plan.parts:
        for width, num in by_width(part.shards, plan.width).items() if part.shards else ():
            weights(walk, part, num * part.block.repeat, width, name=other_width(width, plan))
    packed_weights(walk, plan)
    walk.alloc("buffers", job.model.buffer_bytes, Reason("rotary frequencies and other buffers of the modules"))


def packed_weights(walk: Walk, plan: Plan) -> None:
    """Quantised weights, which every rank holds whole: no engine cuts them."""
    for part in plan.parts:
        found = packed(part.block.module)
        if found:
            why = Reason("values and scales of each weight", {"num_weights": len(found) * part.block.repeat}, "memcalc/formulas/quantization.py")
            walk.alloc(f"weights/{part.block.path} (packed)", sum(found.values()) * part.block.repeat, why)


def weights(walk: Walk, part: Part, num_params: Any, width: int, *, name: str = "") -> None:
    """Resident weights of a block; `name` tells apart those of another width."""
    walk.alloc(
        f"weights/{part.block.path}{name}",
        num_params * width,
        Reason("num_params * width", {"num_params": num_params, "width": width}, "numel × element size of each parameter"),
    )


def other_width(width: int, plan: Plan) -> str:
    """What tells a term apart whose tensors are not of the model's dtype."""
    return "" if width == plan.width else f" ({8 * width}-bit)"


def optimizer_states(walk: Walk, job: Job, plan: Plan) -> None:
    """States of this rank's tensors, on the card; `plan` holds those that the optimizer steps, as it sees them."""
    from memcalc.engine.optimizers import optimizer_for

    optimizer, tensors = optimizer_for(job.run.optimizer), stepped(job, plan)
    for path, (num_bytes, reason) in held(job, plan, tensors, on_host=False).items():
        walk.alloc(f"optimizer/{path}", num_bytes, reason)
    if optimizer.counter_bytes:
        counters = sum(t.copies for t in tensors)
        reason = Reason(f"{optimizer.counter_bytes} * num_tensors", {"num_tensors": counters}, "torch/optim/adamw.py")
        walk.alloc("optimizer/step counters", optimizer.counter_bytes * counters, reason)


def paged_states(job: Job, plan: Plan) -> tuple[Term, ...]:
    """States that the optimizer itself keeps on the host: paged ones, and those that come to the card tensor by tensor."""
    if job.run.task != "train":
        return ()
    found = held(job, plan, stepped(job, plan), on_host=True)
    return tuple(Term(f"host/pageable/{path}", n, why.formula, why.inputs, why.source) for path, (n, why) in found.items())


def held(job: Job, plan: Plan, tensors: Sequence[Stepped], *, on_host: bool) -> dict[str, tuple[Any, Reason]]:
    """Bytes of all tensors' states by name, with their reason; those of another width than the model's apart."""
    from memcalc.engine.optimizers import optimizer_for

    optimizer = optimizer_for(job.run.optimizer)
    found: dict[str, tuple[Any, Reason]] = {}
    for t in tensors:
        for part in optimizer.states(job, t):
            if part.on_host != on_host:
                continue
            path = part.name + (other_width(t.width, plan) if "width" in part.formula else "")
            before, why = found.get(path, (0, None))
            num = t.num_params * t.copies + (0 if why is None else why.inputs["num_params"])
            found[path] = (before + part.bytes * t.copies, Reason(part.formula, {"num_params": num, "width": t.width}, part.source))
    return found


def stepped(job: Job, plan: Plan) -> list[Stepped]:
    """The tensors that this rank's optimizer steps, in their order."""
    from memcalc.engine.optimizers import Stepped

    targets = optimizer_targets(job)
    found = []
    for part in plan.parts:
        for s in part.shards:
            if s.trainable:
                role, shape = part.block.role, own_shape(job, s)
                matrix = len(shape) == 2
                found.append(
                    Stepped(
                        s.path,
                        s.num_params,
                        shape,
                        part.block.repeat,
                        s.width,
                        is_table=matrix and role == "embedding" and s.path.endswith("weight"),
                        is_hidden=matrix and role in ("layer", "tower"),
                        is_target=matrix and s.path in targets,
                    )
                )
    return found


def own_shape(job: Job, shard: Shard) -> tuple[Any, ...]:
    """The shape of a parameter as it is stepped: fsdp1 hands over flat pieces, others pieces along the first axis."""
    if job.engine == "fsdp1" or len(shard.shape) < 2:
        return (shard.num_params,)
    row: Any = 1
    for size in shard.shape[1:]:
        row = row * size
    return (shard.num_params // row, *shard.shape[1:])


def optimizer_targets(job: Job) -> frozenset[str]:
    """Paths of the weights whose gradients GaLore and APOLLO project: of the linear layers that optim_target_modules names; a Conv1D is none.

    Raises:
        UnknownNameError: a name that no linear layer has.
        InputError: a regular expression that takes some of equal layers.

    Source: transformers/trainer_optimizer.py, _setup_low_rank_optimizer.
    """
    from memcalc.engine.optimizers import optimizer_for

    if not optimizer_for(job.run.optimizer).whole_matrices or job.run.optimizer == "muon":
        return frozenset()
    from memcalc.models.lora import linears
    from memcalc.models.targets import searched

    dotted: dict[str, list[str]] = {}
    for block in job.model.blocks:
        numbers = range(job.model.num_layers) if block.role == "layer" else ()
        for path, linear in linears(block.module):
            if not isinstance(linear, Conv1D):
                below = path.replace("/", ".")
                dotted[f"{block.path}/{path}/weight"] = [f"{block.path}.{i}.{below}" for i in numbers] or [below]
    takes = searched(job.run.optim_target_modules, (name for names in dotted.values() for name in names), where="optim_target_modules")
    found = {path: {takes(name) for name in names} for path, names in dotted.items()}
    if any(len(answers) > 1 for answers in found.values()):
        raise InputError("some of equal layers are named and others are not; memcalc projects all of them or none", where="optim_target_modules")
    return frozenset(path for path, answers in found.items() if answers == {True})


def optimizer_temporaries(walk: Walk, job: Job, plan: Plan) -> None:
    """What a step of this rank's tensors allocates on top of states and gradients."""
    from memcalc.engine.optimizers import optimizer_for

    tensors = stepped(job, plan)
    inputs = {"num_params": sum(t.num_params * t.copies for t in tensors), "width": plan.width}
    for need in optimizer_for(job.run.optimizer).temporaries(job, tensors):
        walk.touch(f"optimizer/{need.name}", need.bytes, Reason(need.formula, inputs, need.source))


__all__ = ["DTYPE_BYTES", "Strategy", "optimizer_states", "optimizer_temporaries", "weights"]
