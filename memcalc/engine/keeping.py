"""What transformers' kinds of cache hold on the card and on the host, between tokens and while one is appended.

Source: transformers 5, cache_utils.py, ``DynamicLayer``, ``StaticLayer``, ``QuantizedLayer``, ``Cache.update``; generation/utils.py,
``_prepare_cache_for_generation``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memcalc.code.keeping import Keeping, keeping_of
from memcalc.engine.cache import TRANSFORMERS, LayerCache, Policy, layer_caches, sequence_bytes
from memcalc.engine.result import Term
from memcalc.errors import InputError
from memcalc.formulas import kv_cache
from memcalc.specs.job import Job
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run
from memcalc.units import DTYPE_BYTES

SOURCE = "transformers, cache_utils.py"
OF_BACKEND: dict[str, tuple[int, ...]] = {"quanto": (2, 4), "hqq": (1, 2, 3, 4, 8), "fp8": (4,)}
"""Bits that each backend packs; fp8 is not asked."""


def check_generation(run: Run, model: ModelSpec) -> tuple[str, ...]:
    """Keys of generation that cannot be are refused; those that have no effect are listed.

    Raises:
        InputError: a kind of cache that the model or its backend does not have.
    """
    asked, given = run.generation, run.generation.model_fields_set
    if given and (run.task != "inference" or run.code != "transformers"):
        raise InputError("transformers' caches are of task inference with code transformers; leave it out", where=f"generation.{min(given)}")
    kind = asked.cache_implementation
    if kind == "quantized":
        if asked.cache_nbits not in OF_BACKEND[asked.cache_backend]:
            bits = ", ".join(str(n) for n in OF_BACKEND[asked.cache_backend])
            raise InputError(f"{asked.cache_backend} packs {bits} bits, not {asked.cache_nbits}", where="generation.cache_nbits")
        if any(c.kind not in ("attention", "latent") or c.window is not None for c in layer_caches(model.blocks)):
            raise InputError("quantized caches are of models whose layers all see all tokens; use static or dynamic", where="generation.cache_implementation")
    of_quantized = given & {"cache_backend", "cache_nbits", "q_group_size", "residual_length"}
    unused = {f"generation.{key}": f"the cache is {kind}" for key in sorted(of_quantized) if kind != "quantized"}
    if "max_cache_len" in given and "static" not in kind:
        unused["generation.max_cache_len"] = f"the cache is {kind}"
    if "num_assistant_tokens" in given and asked.assistant_model is None:
        unused["generation.num_assistant_tokens"] = "there is no assistant_model"
    return tuple(f"{key}: {why}" for key, why in unused.items())


def cache_policy(job: Job) -> Policy:
    """How transformers' modules hold what layers remember, without windows."""
    return replace(TRANSFORMERS, dtype=job.run.dtype, tp=job.mesh.tp, width=DTYPE_BYTES[job.run.dtype])


def after_prefill(job: Job) -> Any:
    """On the card once the prompt is through: what `memcalc.code.keeping` leaves there, and of layers on the host the one that comes next."""
    return job.micro_batch * (_resident(job, job.seq_len, filled=False) + prefetched(job, job.seq_len))


def between_tokens(job: Job, length: Any) -> Any:
    """On the card between tokens, once a sequence has come so far."""
    return job.micro_batch * (_resident(job, length, filled=True) + prefetched(job, length))


def prefetched(job: Job, length: Any) -> Any:
    """One layer of those that wait on the host, for one sequence."""
    return next((_layer(job, c, length, filled=True) for c in _waiting(job)), 0)


def appending(job: Job, length: Any) -> dict[str, Any]:
    """Beside all that: tensors that are there while one token is appended to one layer, by path."""
    keeping, policy, found = keeping_of(job.run, job.seq_len), replace(cache_policy(job), windows=True), dict[str, Any]()
    for i, cache in enumerate(c for c in layer_caches(job.model.blocks) if c.kind in ("attention", "latent")):
        tokens = job.micro_batch * cache.tokens(length, policy)
        keys, both = tokens * _keys(cache, policy), tokens * cache.token_bytes(policy)
        found[f"kv_cache/appended/kind {i}"] = _twice(keeping, cache, keys, both)
    return found


def on_host(job: Job) -> tuple[Term, ...]:
    """Layers that wait on the host when the last token comes."""
    length, away = job.seq_len + max(job.run.new_tokens, 1) - 1, _waiting(job)
    size = job.micro_batch * sum(c.num_layers * _layer(job, c, length, filled=True) for c in away)
    return (Term("host/kv_cache", int(size), "layers * tokens * bytes of a token", {"tokens": length}, SOURCE),) if away else ()


# ---------------------------------------------------------------------- inside
def _resident(job: Job, length: Any, *, filled: bool) -> Any:
    """Of one sequence, layers that stay on the card; a dynamic cache lets go of what is behind windows when it is appended to."""
    away = _waiting(job)
    return sum(c.num_layers * _layer(job, c, length, filled=filled) for c in layer_caches(job.model.blocks) if c not in away)


def _waiting(job: Job) -> list[LayerCache]:
    """Layers that wait on the host; recurrent ones never do."""
    keeping = keeping_of(job.run, job.seq_len)
    return [c for c in layer_caches(job.model.blocks) if c.kind in ("attention", "latent") and keeping.leaves(c.window)]


def _layer(job: Job, cache: LayerCache, length: Any, *, filled: bool) -> Any:
    keeping, policy = keeping_of(job.run, job.seq_len), cache_policy(job)
    one = replace(cache, num_layers=1)
    if cache.kind in ("state", "cross") or keeping.kind == "dynamic":
        return sequence_bytes((one,), length, replace(policy, windows=filled))
    if keeping.kind == "static":
        return keeping.room(cache.window) * cache.token_bytes(policy)
    waiting = (length - job.seq_len) % keeping.residual
    values = cache.token_bytes(policy) // policy.width
    return kv_cache.packed_bytes((length - waiting) * values, keeping.packed) + waiting * values * policy.width


def _keys(cache: LayerCache, policy: Policy) -> Any:
    """One token's keys, or its latent."""
    if cache.kind == "latent":
        return kv_cache.stored_bytes(cache.latent_dim, policy.dtype)
    return kv_cache.local_heads(cache.num_kv_heads, policy.tp) * kv_cache.stored_bytes(cache.key_dim, policy.dtype)


def _twice(keeping: Keeping, cache: LayerCache, keys: Any, both: Any) -> Any:
    """While one token is appended to a layer.

    A dynamic layer's keys, then its values, stand twice; one that came from the host has the next beside it; what is packed is unpacked whole
    and joined with the new token; a static layer with a window is rolled into a copy; one without is written in place.
    """
    if keeping.kind == "quantized":
        return 2 * both
    if keeping.kind == "static":
        return (both if cache.window is not None else 0) + (both if keeping.leaves(cache.window) else 0)
    return keys + (both if keeping.leaves(cache.window) else 0)
