"""Whether arrays answer what single runs answer, bit for bit, on ten thousand random runs of a dense model and of a mixture of experts."""

from __future__ import annotations

import random
import sys
import time

from memcalc.engine.resolve import resolve
from memcalc.specs.read import Layer, read_run
from memcalc.whatif.fit import need
from memcalc.whatif.swept import swept

NUM_RUNS = 10_000
MODELS = ("llama-3.1-8b", "mixtral-8x7b")
BATCHES, LENGTHS = 20, 250


def main() -> int:
    """Print how many agree; 1 when one does not."""
    rng, wrong, checked = random.Random(1), 0, 0  # noqa: S311 (not for secrets)
    began = time.perf_counter()
    for model in MODELS:
        batches, lengths = rng.sample(range(1, 65), BATCHES), rng.sample(range(1, 1 << 17), LENGTHS)
        found = swept([Layer({"model": model})], {"micro-batch": tuple(batches), "seq-len": tuple(lengths)})
        for row in found.combinations():
            checked += 1
            wrong += row.need_bytes != need(resolve(read_run(model, **row.values)))
    print(f"{checked - wrong:,} of {checked:,} random runs agree, in {time.perf_counter() - began:.0f} s")
    return int(wrong > 0 or checked != NUM_RUNS)


if __name__ == "__main__":
    sys.exit(main())
