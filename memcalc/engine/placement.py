"""Which layers a ``device_map`` puts on which card, and on the host.

Source: transformers 5, integrations/accelerate.py, ``get_balanced_memory`` and ``infer_auto_device_map``; quantizers/base.py,
``param_element_size``, and those that override it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from memcalc.components.quantized import packed, quantised
from memcalc.engine.settings import trainable_of
from memcalc.errors import InputError
from memcalc.formulas import overheads
from memcalc.specs.gpus import find_gpu
from memcalc.specs.job import Job
from memcalc.specs.model import Block
from memcalc.specs.quantization import Scheme
from memcalc.tape.tensor import numel
from memcalc.units import DTYPE_BYTES, parse_bytes

HOST, DISK = -1, -2
"""Places that are no card."""
UNBOUNDED = 1 << 60
"""Bytes of a place that nobody limits."""
BUFFER = 1.25
"""Of the largest layer: what each card but the last gets beyond its even share."""
ONE_CARD, QUANTISED = 0.9, 0.9
"""Of a single card's free memory that weights may take; of all memory where bitsandbytes packs them (``adjust_max_memory``)."""
BY_BITS = ("nf4", "int8", "fp8_block")
"""Kinds of packed weights that are placed by the bits of their values, without scales; of others by all that is stored."""
UNPACKED = ("affine",)
"""Kinds that are placed as if they were not packed: HQQ says no size of its own."""


class Unit(NamedTuple):
    """What is not split: a layer, a table, a norm, the head.

    Attributes:
        block: one repetition of it.
        bytes: of its weights, as they are sized to be placed; adapters come later.
        largest: of its largest weight.
    """

    block: Block
    bytes: int
    largest: int


class Placed(NamedTuple):
    """Where all units are, in the order in which they run.

    Attributes:
        units: all.
        places: the card of each, or `HOST` or `DISK`.
    """

    units: tuple[Unit, ...]
    places: tuple[int, ...]

    def at(self, place: int) -> list[Unit]:
        """Those of one place."""
        return [unit for unit, where in zip(self.units, self.places, strict=True) if where == place]


def place(job: Job) -> Placed:
    """Where ``device_map`` puts everything.

    Raises:
        InputError: cards are to be filled, no card is named and no ``max_memory`` is given.
    """
    units = tuple(_units(job))
    tied = job.model.tied and not any(unit.bytes for unit in units if unit.block.role == "head")
    room = _room(job, units)
    places, used, here = list[int](), dict.fromkeys(room, 0), 0
    order = [*sorted(key for key in room if key >= 0), *(key for key in (HOST, DISK) if key in room)]
    for i, unit in enumerate(units):
        while True:
            where = order[here]
            spare = max((u.bytes for u in units[i + 1 :]), default=0) if where in (order[0], HOST) else 0
            if where == DISK or used[where] + unit.bytes <= room[where] - spare:
                break
            here += 1
        used[where] += unit.bytes
        places.append(where)
    if tied:
        places[-1] = places[next(i for i, unit in enumerate(units) if unit.block.role == "embedding")]
    return Placed(units, tuple(places))


def may_wait(job: Job) -> bool:
    """Whether layers may be on the host: not those that are trained, nor packed ones, which transformers refuses to load so; the last card takes them."""
    return job.run.task == "inference" and job.run.quantization is None


# ---------------------------------------------------------------------- inside
def _units(job: Job) -> Iterator[Unit]:
    comes_later = trainable_of(job) if job.run.lora is not None or job.run.prompt is not None else None
    for block in job.model.blocks:
        sizes = list(_sizes(block, job.run.dtype, comes_later))
        for _ in range(block.repeat):
            yield Unit(replace(block, repeat=1), sum(sizes), max(sizes, default=0))


def _sizes(block: Block, dtype: str, comes_later: Callable[[str], bool] | None) -> Iterator[int]:
    prefix = f"{block.path}/"
    apart, layers = packed(block.module, prefix), dict(quantised(block.module, prefix))
    scheme: Scheme | None = next((layer.scheme for layer in layers.values()), None)
    for path, weight in block.module.weights(prefix):
        if comes_later is not None and comes_later(path):
            continue
        count = int(numel(weight.shape))
        if path not in apart or scheme is None or scheme.kind in UNPACKED:
            yield count * DTYPE_BYTES[weight.dtype or dtype]
        else:
            yield count * scheme.bits // 8 if scheme.kind in BY_BITS else apart[path]


def _room(job: Job, units: tuple[Unit, ...]) -> dict[int, int]:
    """What each place offers to weights; cards of which nothing is said offer as much as is asked."""
    asked = job.run.loading
    given = {_key(key): parse_bytes(str(size), where="loading.max_memory") for key, size in (asked.max_memory or {}).items()}
    count = job.run.hardware.gpus or 1
    if job.run.hardware.gpu is not None:
        free = find_gpu(job.run.hardware.gpu).capacity_bytes - overheads.CUDA_CONTEXT_BYTES
        room = {i: min(free, given.get(i, free)) for i in range(count)}
    elif any(key >= 0 for key in given):
        room = {key: size for key, size in given.items() if key >= 0}
    elif asked.device_map != "sequential":
        room = dict.fromkeys(range(count), UNBOUNDED)
    else:
        raise InputError("cards are filled one after the other: give --gpu, or max_memory", where="loading.device_map")
    room = {key: size for key, size in room.items() if not given or key in given}
    room |= {HOST: given.get(HOST, UNBOUNDED), DISK: UNBOUNDED}
    cards = sorted(key for key in room if key >= 0)
    if asked.device_map != "sequential":
        _balance(room, cards, units, low_zero=asked.device_map == "balanced_low_0" and len(cards) > 1, is_given=bool(given))
    if job.run.quantization is not None and job.run.quantization.startswith(("nf4", "fp4", "int8")):
        room = {key: int(size * QUANTISED) if key >= 0 else size for key, size in room.items()}
    return room if may_wait(job) else {key: room[key] if key != cards[-1] else UNBOUNDED for key in cards}


def _balance(room: dict[int, int], cards: list[int], units: tuple[Unit, ...], *, low_zero: bool, is_given: bool) -> None:
    """An even share and a buffer on every card but the last, which keeps all of its memory; a single card gives nine tenths."""
    if len(cards) == 1 and not is_given:
        room[cards[0]] = int(room[cards[0]] * ONE_CARD)
    total = sum(unit.bytes for unit in units)
    layers = max((u.bytes for u in units if u.block.role in ("layer", "tower")), default=0)
    share = total // (len(cards) - 1 if low_zero else len(cards)) + int(BUFFER * max(layers, *(u.largest for u in units)))
    for card in cards[:-1]:
        room[card] = room[card] if low_zero and card == 0 else min(share, room[card])
    if low_zero:
        room[0] = min(max(0, total - sum(room[card] for card in cards[1:])), room[0])


def _key(key: Any) -> int:
    if str(key) == "cpu":
        return HOST
    if str(key).isdigit():
        return int(key)
    raise InputError(f"{key!r} is no place; accepted: numbers of cards, and cpu", where="loading.max_memory")
