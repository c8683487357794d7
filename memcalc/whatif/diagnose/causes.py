"""What a message's numbers, its place in the run and the run's own estimate point to. One cause is one function; words are made in `memcalc.report`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, NamedTuple

from memcalc.engine.cache import Policy, layer_caches, token_bytes
from memcalc.engine.result import Serving
from memcalc.specs.job import Job
from memcalc.units import GiB
from memcalc.whatif.diagnose.log import Crash
from memcalc.whatif.diagnose.match import Match
from memcalc.whatif.diagnose.message import Size
from memcalc.whatif.diagnose.position import Position
from memcalc.whatif.diagnose.wordings.deepspeed import HOST
from memcalc.whatif.diagnose.wordings.vllm import POOLS
from memcalc.whatif.serving_advice import SHARES

LATE = 10
"""A failure after more steps than this is not one of the steady state: every kind of step had been there."""


MORE = 1.1
"""More than so many times what the estimate says is not explained by it."""


SWAP_BYTES, BLOCK = 4 * GiB, 16
"""What vLLM kept on the host by default while its engine swapped, and the tokens of a block."""


KEPT = 0.03
"""Of what is in tensors, so much is always reserved beside it."""


class Asked(NamedTuple):
    """The run that a log belongs to, as far as causes need it.

    Attributes:
        job: resolved.
        need_bytes: the least that it needs on a card, as the estimate has it.
        instant: when.
        room_bytes: what the card offers.
        fits: whether its step, played through the caching allocator, gets by with that.
        fitting_seq_len: the longest sequence up to the run's own that fits; 0 where none does.
        host_bytes: on the host, for the ranks of one node.
        serving: what a server makes of the card.
        weights_bytes: of a server, on the card.
    """

    job: Job
    need_bytes: int
    instant: str
    room_bytes: int
    fits: bool
    fitting_seq_len: int
    host_bytes: int = 0
    serving: Serving | None = None
    weights_bytes: int = 0


class Scene(NamedTuple):
    """All that is known of one failure.

    Attributes:
        crash: the message in its place.
        position: where the traceback stands.
        usage: what was told before it of what is used, by the same rank or any.
        asked: the run, where it is given.
        matches: the tensors that have the size.
    """

    crash: Crash
    position: Position | None
    usage: tuple[Crash, ...]
    asked: Asked | None
    matches: tuple[Match, ...]


class Cause(NamedTuple):
    """What it comes from.

    Attributes:
        name: which kind.
        facts: the numbers that speak for it.
    """

    name: str
    facts: dict[str, Any]


def not_sharded(scene: Scene) -> Cause | None:
    """A whole model on every rank of a run that shares it: what was told to be reserved, or is allocated, is all of its weights."""
    asked = scene.asked
    if asked is None or (asked.job.zero != 3 and asked.job.engine not in ("fsdp1", "fsdp2")) or asked.job.mesh.dp == 1:
        return None
    cards = [crash for crash in scene.usage if crash.message.wording != HOST]
    told = [size for crash in cards for size in (crash.message.allocated, crash.message.reserved) if size is not None and size.bytes > GiB]
    for told_size in told:
        for width in (2, 4):
            whole = asked.job.model.num_params * width
            if _is(told_size, whole):
                return Cause(
                    "whole model on every rank", {"whole_bytes": whole, "width": width, "share_bytes": whole // asked.job.mesh.dp, "ranks": asked.job.mesh.dp}
                )
    return None


def unexplained(scene: Scene) -> Cause | None:
    """More was allocated than the run ever needs: it is not run as described, or it is still being loaded."""
    asked, allocated = scene.asked, scene.crash.message.allocated
    if asked is None or allocated is None or scene.crash.message.kind != "device" or allocated.bytes <= MORE * asked.need_bytes:
        return None
    return Cause("more than the run needs", {"allocated_bytes": allocated.bytes, "need_bytes": asked.need_bytes, "instant": asked.instant})


def fragmented(scene: Scene) -> Cause | None:
    """There was room, in pieces: more of them than the allocator always keeps."""
    m = scene.crash.message
    spare = m.unallocated_bytes
    if m.wanted is None or spare is None or m.allocated is None or m.free is None or spare + m.free.bytes < m.wanted.bytes:
        return None
    if spare < KEPT * m.allocated.bytes:
        return None
    return Cause("fragmentation", {"unallocated_bytes": spare, "free_bytes": m.free.bytes, "wanted_bytes": m.wanted.bytes})


def other_processes(scene: Scene) -> Cause | None:
    """Somebody else holds a part of the card that would have sufficed."""
    m = scene.crash.message
    held = sum(size.bytes for _, size in m.others)
    if not m.others or m.wanted is None or held < m.wanted.bytes:
        return None
    return Cause("other processes", {"held_bytes": held, "num_processes": len(m.others)})


def saving(scene: Scene) -> Cause | None:
    """Not the step: a checkpoint."""
    if scene.position is None or scene.position.name != "checkpoint save":
        return None
    num = scene.asked.job.model.num_params if scene.asked is not None else 0
    return Cause("checkpoint save", {"fp32_bytes": 4 * num, "half_bytes": 2 * num})


def evaluating(scene: Scene) -> Cause | None:
    """Not the step: an evaluation."""
    if scene.position is None or scene.position.name not in ("evaluation", "generation"):
        return None
    return Cause("evaluation", {})


def long_sample(scene: Scene) -> Cause | None:
    """A batch longer than those before: the run went on for a while, or the size is a tensor's at a length that no setting names."""
    asked, step = scene.asked, scene.crash.step
    if scene.position is not None and not {"forward_peak", "backward_peak"} & set(scene.position.instants):
        return None
    inverted = next((m for m in scene.matches[:1] if m.how == "at another length"), None)
    late = step is not None and step > LATE
    if inverted is None and not (late and asked is not None and not asked.fits and asked.fitting_seq_len):
        return None
    facts: dict[str, Any] = {"step": step, "seq_len": inverted.seq_len if inverted is not None else None}
    return Cause("long sample", facts | ({"fitting_seq_len": asked.fitting_seq_len, "asked_seq_len": asked.job.seq_len} if asked is not None else {}))


def does_not_fit(scene: Scene) -> Cause | None:
    """The estimate says so, too."""
    asked = scene.asked
    if asked is None or scene.crash.message.kind != "device" or asked.fits:
        return None
    return Cause("does not fit", {"need_bytes": asked.need_bytes, "room_bytes": asked.room_bytes, "instant": asked.instant})


def library(scene: Scene) -> Cause | None:
    """torch's allocator left nothing for a library."""
    return Cause("library", {"name": scene.crash.message.wording}) if scene.crash.message.kind == "library" else None


def refused(scene: Scene) -> Cause | None:
    """A server would not start."""
    m = scene.crash.message
    if m.kind != "refusal":
        return None
    wanted, there = (None if size is None else size.bytes for size in (m.wanted, m.capacity))
    facts: dict[str, Any] = {"engine": m.wording, "tokens": m.tokens, "wanted_bytes": wanted, "there_bytes": there, "estimated_model_len": None}
    facts |= {"free_bytes": m.free.bytes} if m.free is not None else {}
    if scene.asked is not None and scene.asked.serving is not None:
        serving = scene.asked.serving
        facts |= {"estimated_model_len": serving.largest_model_len, "token_bytes": serving.token_bytes, "weights_bytes": scene.asked.weights_bytes}
    pools = next((crash.message.tokens for crash in reversed(scene.usage) if crash.message.wording == POOLS), None)
    if pools is not None and pools[1]:
        facts |= {"host_blocks": pools[1], "swapped_token_bytes": SWAP_BYTES // (pools[1] * BLOCK)}
        if scene.asked is not None:
            facts |= {"tp": _degree(scene.asked.job, pools[1]), "asked_tp": scene.asked.job.mesh.tp}
    return Cause("refusal", facts)


def _degree(job: Job, host_blocks: int) -> int | None:
    """The tensor parallelism under which the swap space of a vLLM that still had one is so many blocks of the model's cache."""
    caches = layer_caches(job.model.blocks)
    return next((tp for tp in (1, 2, 4, 8, 16) if SWAP_BYTES // (BLOCK * int(token_bytes(caches, Policy(tp=tp)))) == host_blocks), None)


def loading(scene: Scene) -> Cause | None:
    """A server holds more in tensors than its share of the card: packed weights stand in both their forms."""
    asked, allocated = scene.asked, scene.crash.message.allocated
    if asked is None or asked.serving is None or allocated is None or scene.crash.message.kind != "device" or asked.job.model.quantization is None:
        return None
    if allocated.bytes <= asked.serving.budget_bytes:
        return None
    return Cause("loading", {"allocated_bytes": allocated.bytes, "budget_bytes": asked.serving.budget_bytes, "weights_bytes": asked.weights_bytes})


def beside_share(scene: Scene) -> Cause | None:
    """A server that starts, and holds its weights: what a request needs beside its share of the card was not there."""
    asked, m = scene.asked, scene.crash.message
    if asked is None or asked.serving is None or m.kind != "device" or asked.job.run.code not in SHARES or not asked.fits:
        return None
    held = m.allocated
    if asked.serving.max_concurrency < 1 or loading(scene) is not None or (held is not None and held.bytes < asked.weights_bytes):
        return None
    short = m.wanted.bytes - m.free.bytes if m.wanted is not None and m.free is not None else 0
    return Cause("beside its share", {"key": SHARES[asked.job.run.code][0], "lower_by": _hundredths(short, m.capacity), "weights_bytes": asked.weights_bytes})


def _hundredths(short_bytes: int, capacity: Size | None) -> float | None:
    """Hundredths of a card that hold so much; None where that is not known."""
    return None if capacity is None or short_bytes <= 0 else ceil(100 * short_bytes / capacity.bytes) / 100


def host(scene: Scene) -> Cause | None:
    """The host's memory, not the card's."""
    m = scene.crash.message
    if m.kind != "host":
        return None
    last = next((crash.message for crash in reversed(scene.usage) if crash.message.wording == HOST), None)
    facts = {"held_bytes": m.allocated.bytes if m.allocated else None, "estimate_bytes": scene.asked.host_bytes if scene.asked else None}
    if last is not None and last.allocated is not None and last.capacity is not None:
        facts |= {"last_bytes": last.allocated.bytes, "there_bytes": last.capacity.bytes}
    return Cause("host memory", facts)


def full(scene: Scene) -> Cause | None:
    """Nothing but that the card is full."""
    m = scene.crash.message
    if m.kind != "device" or m.wanted is None or m.free is None:
        return None
    spare = m.unallocated_bytes or 0
    beyond = m.capacity is not None and m.wanted.bytes > m.capacity.bytes
    return Cause("full", {"short_bytes": max(m.wanted.bytes - m.free.bytes - spare, 0), "is_beyond": beyond})


CAUSES: tuple[Callable[[Scene], Cause | None], ...] = (
    host, refused, library, loading, beside_share, not_sharded, saving, evaluating, long_sample, unexplained, does_not_fit, fragmented, other_processes, full
)  # fmt: skip
"""The more telling first."""


def causes(scene: Scene) -> Iterator[Cause]:
    """All that the scene points to; that the card is full, only where nothing else does."""
    found = False
    for cause in CAUSES:
        one = cause(scene)
        if one is not None and (one.name != "full" or not found):
            found = True
            yield one


def _is(told: Size, num_bytes: int) -> bool:
    return abs(told.bytes - num_bytes) <= max(told.half, 0.002 * num_bytes)
