"""Why an engine does not start, as its log says it, so that `memcalc diagnose` knows both alike (`memcalc.whatif.diagnose.wordings`).

Source: vLLM 0.33, v1/core/kv_cache_utils.py, v1/worker/utils.py; SGLang 0.5.23, srt/model_executor; TensorRT-LLM says so in words of its own.
"""

from __future__ import annotations

from memcalc.engine.result import Serving
from memcalc.units import gib

NOTHING: dict[str, str] = {
    "vllm": "No available memory for the cache blocks",
    "sglang": "Not enough memory. Please try to increase --mem-fraction-static",
}
"""By engine, when its budget leaves no cache."""


def refusal(serving: Serving) -> str:
    """Empty where it starts; SGLang does so with a pool that holds less than the longest sequence, and turns that away when it comes."""
    if serving.kv_cache_bytes <= 0:
        return NOTHING.get(serving.engine, "no memory is left for the cache")
    if serving.sequence_bytes <= serving.kv_cache_bytes or serving.engine == "sglang":
        return ""
    needed, there, longest = gib(serving.sequence_bytes), gib(serving.kv_cache_bytes), serving.largest_model_len
    if serving.engine == "vllm":
        return (
            f"To serve at least one request with the model's max seq len ({serving.max_model_len}), {needed} KV cache is needed, which is larger than "
            f"the available KV cache memory ({there}). Based on the available memory, the estimated maximum model length is {longest}"
        )
    return f"a sequence of {serving.max_model_len} tokens needs {needed} of cache, and {there} are there; the longest that fits is {longest}"


def share(*, free_bytes: int, total_bytes: int, utilization: float, requested_bytes: int) -> str:
    """vLLM's, where less of the card is free than it asks for."""
    free = f"({gib(free_bytes).removesuffix(' GiB')}/{gib(total_bytes)})"
    return f"Free memory on device {free} on startup is less than desired GPU memory utilization ({utilization}, {gib(requested_bytes)})"


def turned_away(serving: Serving) -> tuple[str, ...]:
    """A note, where an engine starts that cannot serve the longest sequence that it takes."""
    if serving.engine != "sglang" or serving.kv_cache_bytes <= 0 or serving.sequence_bytes <= serving.kv_cache_bytes:
        return ()
    return (f"the pool holds no sequence of {serving.max_model_len:,} tokens: SGLang starts, and turns away what is longer than {serving.largest_model_len:,}",)
