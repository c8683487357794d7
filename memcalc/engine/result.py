"""Estimate: the answer as data. Totals are derived from terms; words are made in `memcalc.report`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class Term:
    """Bytes of one kind, with their derivation.

    Attributes:
        path: slash path, from the kind down (``activations/layers/self_attn/query``).
        bytes: how many.
        formula: in names; `inputs` are the numbers put in; `source` is where it is from.
    """

    path: str
    bytes: int
    formula: str = ""
    inputs: dict[str, Any] | None = None
    source: str = ""


@dataclass(frozen=True)
class Instant:
    """What is alive at one moment of the step, on one kind of rank.

    Attributes:
        name: ``start``, ``forward_peak``, ``forward_end``, ``backward_peak``, ``optimizer_step``, …
        rank: which kind of rank (``{"pp": 0}``).
        terms: everything alive, largest first.
    """

    name: str
    rank: dict[str, int]
    terms: tuple[Term, ...]

    @cached_property
    def allocated_bytes(self) -> int:
        """What ``torch.cuda.memory_allocated`` would read."""
        return sum(term.bytes for term in self.terms)


@dataclass(frozen=True)
class Reservation:
    """What the caching allocator makes of a step.

    Attributes:
        terms: what it holds beyond the allocated bytes.
        num_releases: how often it had to give its unused segments back to the card to go on, which costs time.
        wanted_bytes: where the step cannot be: the segment that the card had no room for.
    """

    terms: tuple[Term, ...] = ()
    num_releases: int = 0
    wanted_bytes: int = 0


@dataclass(frozen=True)
class RankEstimate:
    """All instants of one kind of rank.

    Attributes:
        rank: its coordinates, where they matter.
        num_ranks: how many ranks are like it.
        instants: in the order of the step.
        reserve: finds what the caching allocator adds; asked only when the answer needs it, since it plays steps through.
        device: terms outside the allocator (context, libraries, communicators).
        host: terms on the host, for this rank.
    """

    rank: dict[str, int]
    num_ranks: int
    instants: tuple[Instant, ...]
    reserve: Callable[[], Reservation] | None = None
    device: tuple[Term, ...] = ()
    host: tuple[Term, ...] = ()

    @cached_property
    def reservation(self) -> Reservation:
        """The caching allocator's part, within the capacity of the card where one is named."""
        return self.reserve() if self.reserve is not None else Reservation()

    @property
    def reserved(self) -> tuple[Term, ...]:
        """What the caching allocator adds to the allocated bytes at the peak."""
        return self.reservation.terms

    @cached_property
    def peak(self) -> Instant:
        """The instant with the most bytes; the earliest of equal ones."""
        return max(self.instants, key=lambda i: i.allocated_bytes)

    @property
    def allocated_bytes(self) -> int:
        """What ``torch.cuda.max_memory_allocated`` would read."""
        return self.peak.allocated_bytes

    @property
    def reserved_bytes(self) -> int:
        """What ``torch.cuda.max_memory_reserved`` would read."""
        return self.allocated_bytes + sum(t.bytes for t in self.reserved)

    @property
    def device_bytes(self) -> int:
        """What nvidia-smi would show for the process."""
        return self.reserved_bytes + sum(t.bytes for t in self.device)


@dataclass(frozen=True)
class Verdict:
    """Whether it fits.

    Attributes:
        gpu: the card, or None where only a limit was given.
        capacity_bytes: what the card offers, or the limit.
        device_bytes: what the most loaded rank takes.
        margin: the share of the capacity below which head-room is called tight.
        refusal: why the engine would not start, whatever room the card has; empty where it would.
        host_is_tight: the host has little to spare.
    """

    gpu: str | None
    capacity_bytes: int
    device_bytes: int
    margin: float = 0.05
    refusal: str = ""
    host_is_tight: bool = False

    @property
    def headroom_bytes(self) -> int:
        """Capacity left; negative where it does not fit."""
        return self.capacity_bytes - self.device_bytes

    @property
    def fits(self) -> bool:
        """Whether it is at most the capacity, and the engine would start."""
        return self.headroom_bytes >= 0 and not self.refusal

    @property
    def tight(self) -> bool:
        """Whether it fits with less than the margin to spare, or little on the host."""
        return self.fits and (self.host_is_tight or self.headroom_bytes < self.margin * self.capacity_bytes)


@dataclass(frozen=True)
class Risk:
    """What a run that fits takes of its card where lengths of samples vary.

    Attributes:
        device_bytes: with the allocator's fixed segments.
        expandable_bytes: with ``expandable_segments:True``.
        is_refused: with fixed segments one finds no room.
    """

    device_bytes: int
    expandable_bytes: int
    is_refused: bool = False


@dataclass(frozen=True)
class Serving:
    """What a serving engine makes of a card: its pool of cache, and how many sequences that holds.

    Attributes:
        engine: whose rules.
        policy: how it stores what layers remember, in words.
        budget_bytes: what the engine may use of a card.
        kv_cache_bytes: of the pool, on one card.
        token_bytes: what one token takes there while no window is full.
        kv_tokens: tokens that the pool holds.
        block_size: tokens of a block.
        max_model_len: the longest sequence that may come.
        sequence_bytes: what one of that length takes.
        max_concurrency: how many of that length the pool holds; where no card has a part of them, as many as were asked for.
        largest_model_len: the longest of which the pool holds one, at most the model's own length; 0: not one token.
    """

    engine: str
    policy: str
    budget_bytes: int
    kv_cache_bytes: int
    token_bytes: int
    kv_tokens: int
    block_size: int
    max_model_len: int
    sequence_bytes: int
    max_concurrency: float
    largest_model_len: int


@dataclass(frozen=True)
class ModelFacts:
    """What the answer says of the model."""

    name: str
    model_type: str
    total_params: int
    trainable_params: int
    active_params: int


@dataclass(frozen=True)
class Estimate:
    """The answer to a run.

    Attributes:
        model: its name and counts.
        asked: the run as typed, and what it resolved to, by key.
        ranks: every distinct kind of rank, the most loaded first; a data-parallel rank that holds more than the first one comes last.
        verdict: None where no card and no limit was named.
        sanity: closed forms shown beside the estimate, by label, in bytes.
        assumptions: what was decided for the user.
        notes: what the user should know (a stage that shards nothing, a term that is an upper bound).
        ignored: what was read and could not be used.
        host_bytes: on the host, per node.
        host_capacity_bytes: what a node's host has; None where it is not said.
        serving: what a serving engine makes of it; None for all other code.
        weigh: finds what lengths that vary make of it; asked only when the answer needs it, since it plays steps through.
    """

    model: ModelFacts
    asked: dict[str, Any]
    ranks: tuple[RankEstimate, ...]
    verdict: Verdict | None
    sanity: tuple[Term, ...] = ()
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    host_bytes: int = 0
    host_capacity_bytes: int | None = None
    serving: Serving | None = None
    weigh: Callable[[], Risk | None] | None = None

    @cached_property
    def risk(self) -> Risk | None:
        """What a run that fits may still die of; None where it has room for it."""
        return self.weigh() if self.weigh is not None else None

    @property
    def most_loaded(self) -> RankEstimate:
        """The kind of rank with the highest peak; of data-parallel ranks that differ the first, whose log people read (see `heaviest`)."""
        return self.ranks[0]

    @property
    def heaviest(self) -> RankEstimate:
        """The kind of rank with the highest peak, whichever it is."""
        return max(self.ranks, key=lambda rank: rank.allocated_bytes)

    @property
    def peak(self) -> Instant:
        """Its peak instant."""
        return self.most_loaded.peak

    def instant(self, name: str) -> Instant:
        """An instant of the most loaded rank by name.

        Raises:
            KeyError: there is none of that name.
        """
        for instant in self.most_loaded.instants:
            if instant.name == name:
                return instant
        raise KeyError(name)
