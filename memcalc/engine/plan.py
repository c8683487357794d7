"""What one rank runs: its blocks, recorded, in the order of the forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from memcalc.code.context import Settings
from memcalc.components.quantized import packed
from memcalc.dataclass import dataclass
from memcalc.engine.blocks import profile
from memcalc.engine.flow import PIXELS, Flow, Profile, unused
from memcalc.engine.recompute import Unit, units_of
from memcalc.engine.settings import sight_of, tied_paths
from memcalc.engine.sums import with_sums
from memcalc.specs.job import Job
from memcalc.specs.model import Axis, Block, Weight
from memcalc.tape.tensor import Shape, numel
from memcalc.units import DTYPE_BYTES


@dataclass(frozen=True)
class Shard:
    """One parameter as this rank holds it after tensor and expert parallelism.

    Attributes:
        path: its name.
        num_params: elements of this rank's part.
        copies: how many equal ones there are (equal layers).
        trainable: whether it takes a gradient.
        is_expert: whether it belongs to routed experts.
        width: bytes of one element.
        rows: size of the first axis, along which engines that cut each tensor cut it.
        held_width: bytes of one element as it is held, for a weight with a dtype of its own; 0: it is held as the others are.
        shape: sizes of this rank's part; none where it is a flat tensor.
        idle: it would take a gradient and gets none, since nothing uses what it makes.
    """

    path: str
    num_params: Any
    copies: int
    trainable: bool
    is_expert: bool
    width: int = 2
    rows: Any = 1
    held_width: int = 0
    shape: tuple[Any, ...] = ()
    idle: bool = False

    @property
    def wants_gradient(self) -> bool:
        """``requires_grad``: whether or not one comes."""
        return self.trainable or self.idle


@dataclass(frozen=True)
class Part:
    """A block on this rank with what it does to memory.

    Attributes:
        block: which.
        profile: recorded once for all its repetitions.
        shards: its parameters (of one repetition: `copies` is 1).
    """

    block: Block
    profile: Profile
    shards: tuple[Shard, ...]

    @property
    def num_params(self) -> Any:
        """Elements that this rank holds of one repetition."""
        return sum(s.num_params for s in self.shards)


@dataclass(frozen=True)
class Arrival:
    """What a pipeline stage begins with that does not hold the embedding.

    Attributes:
        hidden: hidden states from the stage before.
        shared: tensors that the embedding makes for all layers elsewhere, and this stage for itself.
    """

    hidden: Flow
    shared: dict[str, Flow]


OWN_STEP = ("torchtune", "litgpt")
"""Code with recipes of its own: labels stand in the batch beside the ids, and no hidden state is made a leaf for checkpoints."""
Records = dict[tuple[Any, ...], Profile]
"""Blocks that have been recorded, by what tells them apart."""


@dataclass(frozen=True)
class Plan:
    """All parts of one rank, with what the whole step shares.

    Attributes:
        parts: in the order of the forward pass.
        settings: sizes and dtypes.
        ids: the batch's token ids.
        kept: shared tensors (by name) that something saves for backward.
        leaf: a hidden state that was made a leaf of the graph, so that it and its gradient live as long as the loss.
        arrival: what it begins with where that is not token ids.
        sends: whether its output goes to the next pipeline stage.
        pixels: the batch's images.
        beside: what else the batch says of them, by path.
    """

    parts: tuple[Part, ...]
    settings: Settings
    ids: Flow
    kept: frozenset[str]
    leaf: Flow | None = None
    arrival: Arrival | None = None
    sends: bool = False
    pixels: Flow | None = None
    beside: tuple[tuple[str, Flow], ...] = ()

    def leaves(self) -> Arrival:
        """What its first layer receives from the blocks before it."""
        before = [part for i, part in enumerate(self.parts) if all(p.block.role != "layer" for p in self.parts[: i + 1])]
        shared = {name: flow for part in before for name, flow in part.profile.shared.items()}
        return Arrival(replace(before[-1].profile.out, requires_grad=self.settings.training), shared)

    def shards(self) -> list[Shard]:
        """Every parameter of the rank, with its number of copies."""
        return [replace(s, copies=part.block.repeat) for part in self.parts for s in part.shards]

    @property
    def num_trainable(self) -> Any:
        """Elements that take a gradient."""
        return sum(s.num_params * s.copies for s in self.shards() if s.trainable)

    def trainable_by_width(self) -> dict[int, Any]:
        """Elements that take a gradient, by the bytes of one: those of the model's dtype, and any that are held in another (fp32 routers)."""
        return by_width([s for s in self.shards() if s.trainable], self.width)

    @property
    def num_params(self) -> Any:
        """Elements in all."""
        return sum(s.num_params * s.copies for s in self.shards())

    @property
    def ids_path(self) -> str:
        """Where its input stands."""
        return PIXELS if self.ids.dtype == "float32" else "batch/input_ids"

    @property
    def beside_ids(self) -> str:
        """What a batch that is padded, or packed, says of its tokens."""
        return "batch/position_ids" if self.settings.packed else "batch/attention_mask"

    @property
    def holds_leaf(self) -> bool:
        """The leaf stays on the card all along, since its copy on the host is another tensor."""
        return self.leaf is not None and self.settings.offloads

    @property
    def host_bytes(self) -> Any:
        """What is saved for backward in the host's memory."""
        return sum(part.profile.host_bytes * part.block.repeat for part in self.parts)

    @property
    def width(self) -> int:
        """Bytes of one weight."""
        return DTYPE_BYTES[self.settings.dtype]


def by_width(shards: Iterable[Shard], first: int) -> dict[int, Any]:
    """Elements (copies included) by bytes of one, the given width first."""
    found: dict[int, Any] = {first: 0}
    for s in shards:
        found[s.width] = found.get(s.width, 0) + s.num_params * s.copies
    return found


def make_plan(
    job: Job,
    blocks: tuple[Block, ...],
    settings: Settings,
    *,
    keep_gradients: bool,
    accumulate: bool,
    arrival: Arrival | None = None,
    sends: bool = False,
    records: Records | None = None,
) -> Plan:
    """Record every block of a rank, following the tensors that pass between them.

    A run of equal layers whose first differs in its input, which takes no gradient or is of another dtype, is recorded as two.

    Args:
        job, blocks, settings: what is asked, what this rank runs, and how.
        keep_gradients, accumulate: see `Tape`.
        arrival: where this is a pipeline stage without the embedding, what it begins with.
        sends: whether there is a stage after it.
        records: blocks that have been recorded already; new ones are added.
    """
    ids = flow = front_of(job, settings)
    shared: dict[str, Flow] = {}
    if arrival is not None:
        flow, shared = arrival.hidden, arrival.shared
    kept: set[str] = set()
    leaf: Flow | None = None
    settings = replace(settings, tied=tied_paths(blocks))
    sight = sight_of(job, settings)
    beside = sight[1] if sight is not None else None
    if sight is not None and any(block.role == "join" and getattr(block.module, "masks", False) for block in blocks):
        settings = replace(settings, late_masks=True)
    parts: list[Part] = []
    anew: list[Callable[..., Profile]] = []
    queue = units_of(job.run, blocks)
    records = {} if records is None else records
    while queue:
        block, again, layers = queue.pop(0)
        own, x, joined = _inputs_of(block, settings, sight, flow, beside)
        known = tuple((name, made.key()) for name, made in shared.items())
        key = (block.module, block.path, x.key(), joined and joined.key(), known, again, layers, keep_gradients, accumulate)
        record = partial(
            profile,
            block,
            own or settings,
            x,
            shared,
            recompute=again,
            layers=layers,
            keep_gradients=keep_gradients,
            accumulate=accumulate,
            beside=joined,
            in_batch=x is ids or (sight is not None and x is sight[1]),
        )
        made = records.get(key) or (unused(flow) if own is None else record())
        records[key] = made
        if made.runs and block.repeat > 1 and (made.out.requires_grad, made.out.dtype) != (x.requires_grad, x.dtype):
            queue.insert(0, Unit(replace(block, repeat=block.repeat - 1), again, layers))
            block = replace(block, repeat=1)
        if block.sees_images and own is not None:
            beside = made.out
        elif block.role == "join":
            flow, beside = made.out, None
        else:
            flow = made.out
        shared = shared | made.shared
        needs_leaf = job.run.code == "megatron" or (job.run.recompute == "full" and job.run.code not in OWN_STEP)
        if block.role == "embedding" and needs_leaf and settings.records and not flow.requires_grad:
            # Checkpointed layers need an input that takes a gradient: PEFT and Trainer call enable_input_require_grads, mcore-bridge sees to it always.
            leaf = flow = replace(flow, requires_grad=True)
        kept |= made.keeps
        parts.append(Part(block, made, shards_of(block, own or settings, layers, runs=own is not None)))
        anew.append(record)
    parts = with_sums(parts, anew)
    beside_ids = tuple((f"batch/{name}", Flow(shape, "int64", requires_grad=False)) for name, shape in _beside(job, settings, ids))
    return Plan(tuple(parts), settings, ids, frozenset(kept), leaf, arrival, sends, sight and sight[1], beside_ids)


def front_of(job: Job, settings: Settings) -> Flow:
    """What the model reads: token ids, or images where there is no text."""
    rows, vision = Axis("micro_batch", settings.batch), job.model.vision
    if vision is not None and vision.alone:
        return Flow(vision.pixels(settings.batch, job.image_size), "float32", requires_grad=False)
    return Flow((rows, Axis("seq_len", settings.seq - settings.virtual)), "int64", requires_grad=False)


def _beside(job: Job, settings: Settings, ids: Flow) -> tuple[tuple[str, Shape], ...]:
    """What the batch says besides of images, or of what is to be seen in them."""
    vision = job.model.vision
    if vision is None:
        return (("labels", ids.shape),) if job.run.code in OWN_STEP else ()
    if vision.alone:
        return (("labels", ids.shape[:1]),) if settings.training else ()
    return vision.beside(ids.shape, job.run.images) if job.run.images else ()


def _inputs_of(
    block: Block, settings: Settings, sight: tuple[Settings, Flow] | None, flow: Flow, beside: Flow | None
) -> tuple[Settings | None, Flow, Flow | None]:
    """How a block runs (None: not at all), its input, and what it joins to that."""
    if block.module.needs_sounds:
        return None, flow, None
    if block.role not in ("tower", "tower_end", "join") and (sight is not None or not block.module.needs_images):
        return settings, flow, None
    if sight is None:
        return None, flow, None
    return (settings, flow, beside) if block.role == "join" or beside is None else (sight[0], beside, None)


def shards_of(block: Block, settings: Settings, layers: int = 1, *, runs: bool = True) -> tuple[Shard, ...]:
    """The parameters of one repetition of a block, as this rank holds them, without packed ones; a repetition may be a unit of several layers.

    Args:
        block, settings: which, and how it runs.
        layers: of such a unit.
        runs: it is used at all; otherwise its parameters are idle.
    """
    takes: Callable[[str], bool] = settings.trainable or (lambda path: True)
    paths = [f"{block.path}/"] if layers == 1 else [f"{block.path}/{j}/" for j in range(layers)]
    apart = {path for prefix in paths for path in packed(block.module, prefix)}
    found = []
    for path, weight in (pair for prefix in paths for pair in block.module.weights(prefix)):
        if path not in apart:
            wants = takes(path) and (weight.idle or not weight.frozen)
            trainable = wants and runs and not weight.frozen
            found.append(_shard(path, weight, settings, trainable=trainable, idle=wants and not trainable))
    return tuple(found)


def _shard(path: str, weight: Weight, settings: Settings, *, trainable: bool, idle: bool) -> Shard:
    held = DTYPE_BYTES[weight.dtype] if weight.dtype else 0
    width = DTYPE_BYTES[settings.dtype] if settings.casts_weights or not held else held
    shape = weight.local(settings.degrees)
    sizes = tuple(axis.size for axis in shape)
    return Shard(path, numel(shape), 1, trainable, weight.is_expert, width, sizes[0] if sizes else 1, held, sizes, idle)
