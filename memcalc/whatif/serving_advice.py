"""A server that does not start, or holds too few sequences: what each change brings, and the shortest sequence of changes that suffices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from memcalc.engine.resolve import resolve
from memcalc.engine.result import Estimate
from memcalc.engine.serving import serve
from memcalc.engine.serving.vllm import sizes
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.whatif.ladder import Keys, wider

MAX_CHANGES = 3
"""Of one sequence of changes."""

SHARES = {"vllm": ("gpu_memory_utilization", 0.95), "sglang": ("mem_fraction_static", 0.92), "trtllm": ("free_gpu_memory_fraction", 0.95)}
"""The key of an engine's share of its card, and the largest that is proposed: each a little above the engine's default."""

LARGER_SHARE = "a larger share of the card"

LENGTHS, ROUND = 512, 256
"""No shorter sequence is proposed; and of those only multiples of this."""


class Change(NamedTuple):
    """One kind of change.

    Attributes:
        name: what is changed.
        variants: keys, mild ones first; none where there is nothing to change.
        cost: what it costs, in words.
    """

    name: str
    variants: Callable[[Job], Iterator[Keys]]
    cost: str


class Tried(NamedTuple):
    """A change by itself, in its strongest variant, or the mildest that suffices.

    Attributes:
        change, keys: which.
        kv_cache_bytes: of the pool then.
        sequences: held at once then.
        longest: tokens of the longest sequence then.
        suffices: the server starts.
    """

    change: Change
    keys: Keys
    kv_cache_bytes: int
    sequences: float
    longest: int
    suffices: bool


class ServingAdvice(NamedTuple):
    """What to change.

    Attributes:
        job: the run as resolved.
        answer: as it is.
        changes: each by itself.
        path: the shortest sequence that makes it start; empty where none does, or none is needed.
        changed: the run with all of it; None where there is none.
    """

    job: Job
    answer: Estimate
    changes: tuple[Tried, ...]
    path: tuple[tuple[Change, Keys], ...]
    changed: Run | None

    @property
    def fits(self) -> bool:
        """It starts as it is."""
        return starts(self.answer)


def advise_server(run: Run) -> ServingAdvice:
    """What to change in a run that serves.

    Raises:
        InputError: no card, or the run cannot be.
    """
    job = resolve(run)
    if job.run.hardware.gpu is None:
        raise InputError("no card named: give --gpu (`memcalc gpus` lists them)")
    answer = serve(job)
    changes = tuple(found for change in CHANGES if (found := _alone(change, job)) is not None)
    if starts(answer):
        return ServingAdvice(job, answer, changes, (), None)
    path, there = _shortest(job)
    return ServingAdvice(job, answer, changes, path, None if there is None else there.run)


def starts(answer: Estimate) -> bool:
    """The card holds it, the engine does not refuse, and one sequence of the full length has room."""
    held = answer.serving is not None and answer.serving.max_concurrency >= 1
    return held and answer.verdict is not None and answer.verdict.fits


# ---------------------------------------------------------------------- inside
def _changed(job: Job, keys: Keys) -> Job | None:
    try:
        return resolve(read_run(job.run, **keys))
    except InputError:
        return None


def _alone(change: Change, job: Job) -> Tried | None:
    found: Tried | None = None
    for keys in change.variants(job):
        there = _changed(job, keys)
        if there is None:
            continue
        answer = serve(there)
        serving = answer.serving
        assert serving is not None
        found = Tried(change, keys, serving.kv_cache_bytes, serving.max_concurrency, serving.largest_model_len, starts(answer))
        if found.suffices:
            break
    return found


def _shortest(job: Job) -> tuple[tuple[tuple[Change, Keys], ...], Job | None]:
    """Of the sequences that suffice one with the fewest changes, of those the first from cheap to dear; the last as mild as suffices."""
    for count in range(1, MAX_CHANGES + 1):
        for some in combinations(CHANGES, count):
            found = _walked(some, job)
            if found is not None:
                return found
    return (), None


def _walked(some: tuple[Change, ...], job: Job) -> tuple[tuple[tuple[Change, Keys], ...], Job] | None:
    taken: list[tuple[Change, Keys]] = []
    here = job
    for change in some[:-1]:
        options = [(keys, there) for keys in change.variants(here) if (there := _changed(here, keys)) is not None]
        if not options:
            return None
        keys, here = options[-1]
        taken.append((change, keys))
    for keys in some[-1].variants(here):
        there = _changed(here, keys)
        if there is not None and starts(serve(there)):
            return (*taken, (some[-1], keys)), there
    return None


def _share(job: Job) -> Iterator[Keys]:
    key, most = SHARES.get(job.run.code, ("", 0.0))
    asked = getattr(job.run.serving, key) if key else most
    if asked is None or asked < most:
        yield {key: most}


def _sequences(job: Job) -> Iterator[Keys]:
    if job.run.code == "vllm":
        yield from ({"max_num_seqs": n} for n in (256, 64, 16) if n < sizes(job)[1])


def _graphs(job: Job) -> Iterator[Keys]:
    if job.run.code in ("vllm", "sglang") and not job.run.serving.enforce_eager:
        yield {"enforce_eager": True}


def _length(job: Job) -> Iterator[Keys]:
    serving = serve(job).serving
    assert serving is not None
    if LENGTHS <= serving.largest_model_len < job.seq_len:
        yield {"max_model_len": serving.largest_model_len // ROUND * ROUND}


def _cache(job: Job) -> Iterator[Keys]:
    if job.run.serving.kv_cache_dtype == "auto":
        yield {"kv_cache_dtype": "q8_0" if job.run.code == "llamacpp" else "fp8"}


def _tensor(job: Job) -> Iterator[Keys]:
    if job.run.code != "llamacpp":
        yield from wider(job)


def _cards(job: Job) -> Iterator[Keys]:
    if job.run.code == "llamacpp":
        yield from ({"gpus": job.mesh.pp * n} for n in (2, 4))


def _weights(job: Job) -> Iterator[Keys]:
    if job.model.quantization is None and job.run.quantization is None and not job.run.model.endswith(".gguf"):
        kinds = ("q8_0", "q5_k_m", "q4_k_m") if job.run.code == "llamacpp" else ("fp8", "awq")
        yield from ({"quantization": kind} for kind in kinds)


def _offload(job: Job) -> Iterator[Keys]:
    if job.run.code == "vllm" and not job.run.serving.cpu_offload_gb:
        yield from ({"cpu_offload_gb": gib} for gib in (4.0, 8.0, 16.0))
    if job.run.code == "llamacpp" and job.run.serving.n_gpu_layers is None:
        yield from ({"n_gpu_layers": job.model.num_layers * part // 4} for part in (3, 2, 1))


CHANGES: tuple[Change, ...] = (
    Change(LARGER_SHARE, _share, "none, where nothing else runs there; what the driver and other processes need must stay free"),
    Change("fewer sequences in a step", _sequences, "fewer requests at once; the profiling run's sampler needs less"),
    Change("no graphs", _graphs, "slower steps at small batches"),
    Change("a shorter longest sequence", _length, "longer requests are turned away"),
    Change("cache in 8 bits", _cache, "little accuracy (KIVI, Liu et al. 2024, has less left at 2 bits); attention kernels that read it"),
    Change("tensor parallelism", _tensor, "more cards, with two all-reduces a layer between them (Shoeybi et al. 2019)"),
    Change("more cards", _cards, "more cards, one of which computes at a time"),
    Change("weights in fewer bits", _weights, "some accuracy (AWQ, Lin et al. 2023; fp8, Micikevicius et al. 2022)"),
    Change("weights on the host", _offload, "they cross PCIe in every step"),
)
"""From cheap to dear."""
