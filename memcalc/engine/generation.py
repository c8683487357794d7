"""Tokens after the prompt, in transformers: caches that grow by concatenation, layers with windows that let go of the rest.

Source: transformers 5, cache_utils.py, ``DynamicLayer.update`` and ``DynamicSlidingWindowLayer.update``; generation/utils.py, ``_sample``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memcalc.engine.cache import TRANSFORMERS, LayerCache, Policy, layer_caches, sequence_bytes
from memcalc.engine.walk import Reason, Walk
from memcalc.formulas import kv_cache
from memcalc.specs.job import Job
from memcalc.units import DTYPE_BYTES

SOURCE = "transformers, cache_utils.py"
TOKEN_BYTES = 8
"""Of a token's number."""


def generate(walk: Walk, job: Job) -> None:
    """The instant ``generate``: the most that is alive while tokens are generated, on a walk that has gone through the prefill.

    The last token is fed to nobody, so the cache ends with one fewer. Layers with windows hold the whole prompt until the first token comes; each
    layer's keys, and then its values, stand twice while one token is appended. Beams are so many sequences from the prompt on; their caches are
    put in order by as large copies, and their scores stand beside logits and their log-softmax (``_beam_search``).
    """
    prompt, length = job.seq_len, job.seq_len + job.run.new_tokens - 1
    width = DTYPE_BYTES[job.run.dtype]
    caches = layer_caches(job.model.blocks)
    held = replace(TRANSFORMERS, dtype=job.run.dtype, tp=job.mesh.tp, width=width)
    capped = replace(held, windows=True)
    grown = sequence_bytes(caches, length, capped) - sequence_bytes(caches, prompt, held)
    with walk.window("generate"):
        walk.alloc("batch/input_ids", job.micro_batch * (length + 1) * TOKEN_BYTES, Reason("prompt and answer, 8 bytes a token"))
        walk.alloc("kv_cache/new tokens, less those behind windows", job.micro_batch * grown, Reason("cache of the last step - cache of the prompt"))
        for path, num_bytes in _twice(job, caches, length, capped).items():
            walk.alloc(path, num_bytes, Reason("one layer's keys, while a token is appended", {}, SOURCE))
            walk.free(path, num_bytes)
        if job.run.attention == "eager":
            walk.touch("activations/repeated keys and values, scores", _spread(job, length, width), Reason("of one layer", {}, "eager_attention_forward"))
        copies = 3 if job.run.num_beams > 1 else 1
        logits = job.micro_batch * job.model.vocab_size * 4 * copies
        walk.touch("activations/logits of the next token", logits, Reason("sequences * vocab_size * 4 * copies", {"copies": copies}, "generation/utils.py"))


def _twice(job: Job, caches: tuple[LayerCache, ...], length: Any, policy: Policy) -> dict[str, Any]:
    """The tensors that stand twice, one of each kind of layer."""
    found: dict[str, Any] = {}
    for i, cache in enumerate(c for c in caches if c.kind in ("attention", "latent")):
        tokens = job.micro_batch * cache.tokens(length, policy)
        if cache.kind == "latent":
            row = kv_cache.stored_bytes(cache.latent_dim, policy.dtype)
        else:
            row = kv_cache.local_heads(cache.num_kv_heads, policy.tp) * kv_cache.stored_bytes(cache.key_dim, policy.dtype)
        found[f"kv_cache/appended/kind {i}"] = tokens * row
    return found


def _spread(job: Job, length: Any, width: int) -> Any:
    """Eager attention of one token: keys and values repeated for all heads, scores, and their softmax in fp32 with its input."""
    heads = job.model.num_heads // job.mesh.tp
    return job.micro_batch * heads * length * (2 * job.model.head_dim * width + width + 4 + 4)
