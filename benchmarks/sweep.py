"""How many configurations a second a sweep answers on one core, on a dense model and on a mixture of experts."""

from __future__ import annotations

import sys
import time

from memcalc.specs.read import Layer
from memcalc.whatif.swept import swept

BAR = 200_000
"""Configurations a second."""

RUNS = 3
"""The best counts, in time of one core: others may use the machine."""

MODELS = ("llama-3.1-8b", "mixtral-8x7b")
BATCHES = tuple(range(1, 65))
LENGTHS = tuple(range(128, 128 * 8193, 128))


def rate(model: str) -> tuple[int, float]:
    """How many, and in how many seconds: the whole way from the run to the count of those that fit an H100."""
    began = time.process_time()
    found = swept([Layer({"model": model, "hardware": {"gpu": "h100-80g"}})], {"micro-batch": BATCHES, "seq-len": LENGTHS})
    counts = found.counts()
    return sum(counts.values()), time.process_time() - began


def main() -> int:
    """Print the rates; 1 when one misses the bar."""
    slow = False
    rate(MODELS[0])  # the first imports numpy
    for model in MODELS:
        count, seconds = min((rate(model) for _ in range(RUNS)), key=lambda found: found[1])
        a_second = count / seconds
        slow |= a_second < BAR
        print(f"sweep {model:14s} {count:,} configurations in {seconds:.2f} s: {a_second:,.0f} a second, {'MISSES' if a_second < BAR else 'above'} {BAR:,}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
