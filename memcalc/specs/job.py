"""Job: a run with everything resolved. Plain frozen dataclasses; the sizes of the batch may be integer arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memcalc.dataclass import dataclass
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.specs.deepspeed import DeepSpeed


@dataclass(frozen=True)
class Mesh:
    """How many ranks there are along each dimension; `world` is dp · tp · pp · cp (experts are spread inside dp · cp).

    Attributes:
        dp: data-parallel ranks, replicas included.
        dp_replicate: replicas among them (HSDP).
    """

    dp: Any = 1
    tp: Any = 1
    pp: int = 1
    vpp: int = 1
    cp: Any = 1
    ep: Any = 1
    etp: Any = 1
    sp: bool = False
    dp_replicate: Any = 1

    @property
    def world(self) -> Any:
        """Cards in all."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def dp_shard(self) -> Any:
        """Ranks that share one sharded copy."""
        return self.dp // self.dp_replicate


@dataclass(frozen=True)
class Role:
    """A model that takes part in training another, or in training the actor: itself.

    Attributes:
        name: actor, reference, critic, reward or teacher.
        job: it as a job of its own, on the cards that it lives on.
        on_card: it lives on the actor's cards.
        idle: what of it is put away while others work (see `memcalc.specs.roles.IDLE`).
        shares: its weights are the actor's, but for what it adds (adapters, a head).
        takes_place: it has weights of its own, which wait on the host and stand where the actor's do while it works.
    """

    name: str
    job: Job
    on_card: bool = True
    idle: frozenset[str] = frozenset()
    shares: bool = False
    takes_place: bool = False


@dataclass(frozen=True)
class Cast:
    """Who takes part in preference or reinforcement learning.

    Attributes:
        run: what was typed, with the defaults of the framework that it names.
        actor: the model that learns.
        others: the models beside it.
        sequences: answers of each card in one rollout; 0: as many as one optimizer step takes.
        server: what generates, where that is not the actor itself.
        is_online: it learns from answers that it generates.
    """

    run: Run
    actor: Role
    others: tuple[Role, ...] = ()
    sequences: int = 0
    server: Job | None = None
    is_online: bool = False


@dataclass(frozen=True)
class Job:
    """What the engine is asked.

    Attributes:
        run: what was typed.
        model: what it names.
        mesh: the degrees, all known.
        engine: who shards, resolved.
        zero: the stage, resolved.
        micro_batch, seq_len: sequences per card and forward pass, tokens of each: ints or integer arrays.
        foreach: whether the optimizer steps all tensors at once.
        assumptions: what was decided for the user, in words.
        notes: what the user should know of the answer.
        ignored: what was read and could not be used.
        cast: who takes part, where more models than the one do.
        dp_rank: which of the data-parallel ranks, where they differ.
        expert_share: rows of tokens that this kind of rank's experts get over the even share, as a fraction.
        deepspeed: the configuration of the engine deepspeed.
        image_size: pixels of an image either way, where sequences hold any.
    """

    run: Run
    model: ModelSpec
    mesh: Mesh
    engine: str
    zero: int
    micro_batch: Any
    seq_len: Any
    foreach: bool = True
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    deepspeed: DeepSpeed | None = None
    image_size: int = 0
    dp_rank: int = 0
    expert_share: tuple[int, int] = (1, 1)
    cast: Cast | None = None

    @property
    def asked(self) -> Run:
        """The run to ask again with other keys: of a job with a cast, the run of all."""
        return self.run if self.cast is None else self.cast.run

    @property
    def loads_whole(self) -> bool:
        """Whether stage 3 begins with the whole model on every rank, because it was not built under ``zero.Init``."""
        return self.engine == "deepspeed" and self.zero == 3 and not (self.run.sharding.zero3_init_flag and not self.loads_quantised)

    @property
    def loads_quantised(self) -> bool:
        """Whether the checkpoint is read as a quantised one, which transformers never builds under ``zero.Init`` (``needs_zero3_init``)."""
        stored = self.model.quantization
        return self.run.quantization is not None or (stored is not None and stored.name == "mxfp4")
