"""How long a cold `memcalc estimate` takes, against the two imports it cannot do without."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 10
MARGIN_SECONDS = 0.1
CEILING_SECONDS = 0.2
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""As at a user's desk, where all that runs was compiled at its installation or first run."""


def seconds(command: list[str]) -> float:
    """Wall time of one run."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    return time.perf_counter() - began


def main() -> int:
    """Print both medians and what they are held against; 1 when a bar is missed."""
    memcalc = shutil.which("memcalc", path=str(Path(sys.executable).parent))
    if memcalc is None:
        sys.exit("memcalc is not installed beside this Python: pip install -e .")
    estimate = [memcalc, "estimate", "llama-7b", "--tp", "2", "--zero", "2"]
    imports = [sys.executable, "-c", "import typer, pydantic"]
    seconds(estimate), seconds(imports)  # the first run writes bytecode
    # One after the other, so that a busy moment of the machine falls on both.
    pairs = [(seconds(estimate), seconds(imports)) for _ in range(RUNS)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"memcalc estimate llama-7b --tp 2 --zero 2    {ours:6.3f} s   (median of {RUNS})")
    print(f'python -c "import typer, pydantic"           {bare:6.3f} s')
    bars = [(f"difference {ours - bare:+.3f} s", ours - bare, MARGIN_SECONDS), (f"total {ours:.3f} s", ours, CEILING_SECONDS)]
    for label, value, bar in bars:
        print(f"{label}: {'within' if value <= bar else 'MISSES'} {bar} s")
    return int(any(value > bar for _, value, bar in bars))


if __name__ == "__main__":
    sys.exit(main())
