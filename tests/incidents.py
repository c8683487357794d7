"""The table of incidents in ``docs/stress.md``: what each brings in four runs, and whether they survive it.

``python -m tests.incidents`` writes it anew, between the two marks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memcalc.report.tables import grid
from memcalc.specs.read import read_run
from memcalc.units import GiB
from memcalc.whatif.stress import Stressed, stress
from memcalc.whatif.stress.situation import Incident

PAGE = Path(__file__).resolve().parent.parent / "docs" / "stress.md"
BEGIN, END = "<!-- incidents -->\n", "<!-- end of incidents -->\n"

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-7b": (
        "FSDP1 on 8 × A100-40GB, fp32 shards computed in bf16, 4 × 2,048 tokens",
        {
            "engine": "fsdp1", "dp": 8, "gpu": "a100-40g", "dtype": "float32", "autocast": "bfloat16", "reduce_dtype": "bfloat16",
            "seq_len": 2048, "micro_batch": 4, "recompute": "full",
        },
    ),
    "llama-13b": (
        "ZeRO-3, optimizer on the host, 4 × V100-32GB, fp16, 4 × 2,048 tokens",
        {"zero": 3, "gpus": 4, "gpu": "v100-32g", "dtype": "float16", "offload_optimizer": "cpu", "seq_len": 2048, "micro_batch": 4, "recompute": "full"},
    ),
    "mixtral-8x7b": (
        "expert parallelism over 4, FSDP2 on 8 × H100-80GB, bf16, 2 × 4,096 tokens",
        {"ep": 4, "gpus": 8, "engine": "fsdp2", "gpu": "h100-80g", "seq_len": 4096, "micro_batch": 2, "recompute": "full"},
    ),
    "qwen3-30b-a3b": (
        "FSDP2 on 8 × H100-80GB, bf16, 2 × 4,096 tokens",
        {"gpus": 8, "engine": "fsdp2", "gpu": "h100-80g", "seq_len": 4096, "micro_batch": 2, "recompute": "full"},
    ),
}  # fmt: skip
"""What they are in words, and their keys."""


def struck() -> dict[str, Stressed]:
    """Every run under every incident."""
    return {name: stress(read_run(name, **keys)) for name, (_, keys) in RUNS.items()}


def table(found: dict[str, Stressed]) -> str:
    """A row for each incident, a column for each run."""
    names: dict[str, str] = {}
    for one in found.values():
        for incident in one.incidents:
            if incident.survives is not None or incident.name not in names:
                names.setdefault(incident.name, incident.title)
    rows = [["as it is", *(f"{one.need_bytes / GiB:.1f} of {one.room.room_bytes / GiB:.1f}" for one in found.values())]]
    for name in sorted(names, key=list(names).index):
        cells = [_cell(next((i for i in one.incidents if i.name == name), None)) for one in found.values()]
        if any(cell != "·" for cell in cells):
            rows.append([f"`{name}`", *cells])
    return grid(rows, ["GiB on a card", *found])


def _cell(incident: Incident | None) -> str:
    if incident is None or incident.survives is None:
        return "·"
    more = incident.extra_bytes / GiB
    text = "nothing" if abs(more) < 0.005 else f"{more:+.2f}".replace("-", "−")
    return text if incident.survives else f"**{text} dies**"


def main() -> None:
    """Write the page's table."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    runs = "\n".join(f"- `{name}`: {said}" for name, (said, _) in RUNS.items())
    PAGE.write_text(f"{head}{BEGIN}\n{runs}\n\n{table(struck())}\n\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
