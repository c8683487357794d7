"""How long a plan takes, the largest of all among them, and how many configurations a second its groups answer on one core."""

from __future__ import annotations

import sys
import time
from itertools import islice

from memcalc.models.read import read_model
from memcalc.specs.read import read_run
from memcalc.whatif.candidates import Way, model_of, ways
from memcalc.whatif.fit import room_for
from memcalc.whatif.plan import ENGINES, Search, plan

BAR_SECONDS, BAR_RATE = 2.0, 200_000
RUNS = 3
"""The best counts, in time of one core: others may use the machine."""

PLANS = (("llama-3.1-405b", 16384, 8192, 2048), ("mixtral-8x7b", 64, 4096, 512))
"""Model, cards, length, global batch."""

GROUPS, BATCHES = 8, range(1, 32_769)
"""Groups of ways that are walked, and micro-batches that each answers at once."""


def seconds(model: str, gpus: int, seq_len: int, batch: int) -> tuple[float, str]:
    """The best time of a whole plan, and what it was."""
    times = []
    for _ in range(RUNS):
        began = time.process_time()
        found = plan(read_run(model, gpus=gpus, gpu="h100-80g", seq_len=seq_len), global_batch=batch)
        times.append(time.process_time() - began)
    return min(times), f"plan {model:14s} {gpus:6,} cards: {found.num_ways:,} ways, {found.num_walked} groups walked"


def rate(model: str, gpus: int, seq_len: int, batch: int) -> float:
    """Configurations a second, of groups of ways that are spread over all there are: engines, degrees, recomputation."""
    run = read_run(model, gpus=gpus, gpu="h100-80g", seq_len=seq_len, attention="flash_attention_2")
    counts = model_of(read_model(model), seq_len=seq_len, global_batch=batch, gpus=gpus)
    groups: dict[tuple[object, ...], Way] = {way.group: way for way in ways(counts, ENGINES)}
    best = 0.0
    for _ in range(RUNS):
        search, answered = Search(run, counts, room_for(run)), 0
        began = time.process_time()
        for way in islice(groups.values(), 0, None, max(1, len(groups) // GROUPS)):
            answered += len(search.walk(way, BATCHES))
        best = max(best, answered / (time.process_time() - began))
    return best


def main() -> int:
    """Print times and rates; 1 when one misses its bar."""
    missed = False
    for asked in PLANS:
        took, what = seconds(*asked)
        a_second = rate(*asked)
        missed |= took > BAR_SECONDS or a_second < BAR_RATE
        print(f"{what} in {took:.2f} s: {'MISSES' if took > BAR_SECONDS else 'within'} {BAR_SECONDS:g} s")
        print(f"plan {asked[0]:14s} groups of ways over micro-batches: {a_second:,.0f} a second, {'MISSES' if a_second < BAR_RATE else 'above'} {BAR_RATE:,}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
