"""Attention under Megatron: kernels, shared KV heads, context parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.specs.model import ModelSpec
from tests.engine.toy import job, llama


def core(name: str = "forward_end", model: ModelSpec | None = None, **keys: Any) -> dict[str, int]:
    """What attention has at an instant, by tensor, per layer of eight and token of 128."""
    instant = estimate_job(job(model or llama(), code="megatron", **keys)).instant(name)
    found = {t.path.removeprefix("activations/layers/self_attn/"): t.bytes for t in instant.terms if "self_attn" in t.path}
    return {path: n // (8 * 128) for path, n in found.items() if not path.endswith("random state")}


def test_flash_attention_2_copies_for_several_sequences() -> None:
    """One more output, since the kernel's own has the batch first; with one sequence there is none."""
    assert sum(core(attention="flash_attention_2").values()) == sum(core().values())
    several, fused = core(attention="flash_attention_2", micro_batch=2), core(micro_batch=2)
    assert sum(several.values()) - sum(fused.values()) == 2 * 2 * 256


def test_unfused_attention_keeps_probabilities() -> None:
    """Two bytes a head and key; with dropout a mask and the result as well: five."""
    heads, keys = 8, 128
    assert core(attention="eager")["core_attention/probabilities"] == 2 * heads * keys
    dropped = core(attention="eager", attention_dropout=0.1)
    assert sum(n for p, n in dropped.items() if "prob" in p or "dropout" in p) == 5 * heads * keys


def test_recomputing_core_attention_keeps_views_of_the_product_whole() -> None:
    """Queries and keys after rotary are kept beside the values, which are a view of the product they were cut from."""
    found = core(attention="eager", recompute="selective")
    assert found == {"query after rotary": 512, "key after rotary": 256, "query, key and value": 1024, "core_attention/attention output": 512}


def test_more_ranks_than_kv_heads_share_them() -> None:
    """Weights are cut evenly all the same; each rank works on the one head of its group."""
    found = core(tp=8)
    assert found["key after rotary"] == 2 * 32
    assert found["query after rotary"] == 2 * 32


@pytest.mark.parametrize("how", ["p2p", "all_gather"])
def test_context_parallelism_keeps_this_ranks_part(how: str) -> None:
    """Half of everything with two ranks, whether keys and values travel or are gathered."""
    one, two = core(), core(cp=2, cp_comm_type=how)
    assert sum(two.values()) * 2 == sum(one.values())


def test_gathered_keys_and_values_are_there_while_the_kernel_runs() -> None:
    """A ring has a buffer for each step as well; Ulysses needs neither, but keeps its output twice."""
    ring, gather, ulysses = (sum(core(cp=2, cp_comm_type=how).values()) for how in ("p2p", "all_gather", "a2a"))
    assert ring == gather
    assert ulysses - ring == 2 * 256 // 2
