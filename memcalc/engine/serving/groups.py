"""How vLLM divides the cache of a model whose layers are not all alike: groups of as many layers as each other, whose pages are equally large.

Source: vLLM 0.33, v1/core/kv_cache_utils.py, ``_get_kv_cache_groups_uniform_page_size``, ``unify_kv_cache_spec_page_size``; platforms/interface.py,
``_align_hybrid_block_size``; config/vllm.py (chunked attention switches groups off).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from memcalc.engine.cache import LayerCache, Policy
from memcalc.units import ceil_div

ALIGNED = 16
"""Tokens that attention kernels' blocks are a multiple of."""
CLOSE = 1.5
"""Kinds of layers whose numbers are closer than this are padded to the larger one."""


class Groups(NamedTuple):
    """The cache as it is divided.

    Attributes:
        caches: of layers, those that fill up groups counted in.
        policy: with the tokens of a block that all groups share.
        num_groups: of them.
        page_bytes: of one block in all layers of a group.
    """

    caches: tuple[LayerCache, ...]
    policy: Policy
    num_groups: int
    page_bytes: int

    def tokens(self, pool_bytes: int) -> int:
        """What the engine says that the pool holds: as if each token stood in every group."""
        return pool_bytes // self.page_bytes // self.num_groups * self.policy.block


def grouped(caches: tuple[LayerCache, ...], policy: Policy) -> Groups | None:
    """The groups of a rank; None where all its layers keep all tokens, or remember only what does not grow."""
    told, caches = caches, _without_chunks(caches)
    kinds = [cache for cache in caches if cache.kind != "cross"]
    growing = [cache for cache in kinds if cache.kind != "state"]
    if not growing or (caches == told and all(cache.kind != "state" and cache.window is None for cache in kinds)):
        return None
    policy = replace(policy, block=_block(kinds, policy))
    page = max(int(cache.token_bytes(policy)) for cache in growing) * policy.block
    counts = [cache.num_layers for cache in kinds]
    size = max(counts) if max(counts) < CLOSE * min(counts) else min(counts)
    padded = [replace(cache, num_layers=ceil_div(cache.num_layers, size) * size) for cache in kinds]
    padded = [_paged(cache, page, policy) if cache.kind == "state" else cache for cache in padded]
    others = [cache for cache in caches if cache.kind == "cross"]
    return Groups((*padded, *others), policy, sum(cache.num_layers // size for cache in padded), size * page)


def _without_chunks(caches: tuple[LayerCache, ...]) -> tuple[LayerCache, ...]:
    """With chunked attention all layers keep all tokens."""
    if not any(cache.chunked for cache in caches):
        return caches
    merged: dict[LayerCache, int] = {}
    for cache in caches:
        kind = replace(cache, num_layers=1, window=None, chunked=False)
        merged[kind] = merged.get(kind, 0) + cache.num_layers
    return tuple(replace(kind, num_layers=count) for kind, count in merged.items())


def _block(kinds: list[LayerCache], policy: Policy) -> int:
    """Tokens of a block: as many as make a page as large as a state."""
    states = [int(cache.state_bytes(policy)) for cache in kinds if cache.kind == "state"]
    if not states:
        return policy.block
    each = max(int(cache.token_bytes(policy)) for cache in kinds if cache.kind != "state")
    return max(policy.block, int(ALIGNED * ceil_div(max(states), ALIGNED * each)))


def _paged(cache: LayerCache, page: int, policy: Policy) -> LayerCache:
    """A state takes a page of its own."""
    elements: Any = page * policy.tp // policy.state_width
    return replace(cache, state_elements=elements, conv_channels=0)
