"""The tables of incidents in ``docs/stress.md`` and ``README.md``: what each brings in four runs, and whether they survive it.

``python -m tests.incidents`` writes it anew, between the two marks, and a shorter one in the README.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memcalc.report.tables import grid
from memcalc.specs.read import read_run
from memcalc.units import GiB
from memcalc.whatif import stress as scenarios
from memcalc.whatif.stress import Stressed, stress
from memcalc.whatif.stress.situation import Incident

README = Path(__file__).resolve().parent.parent / "README.md"
PAGE = README.parent / "docs" / "stress.md"
BEGIN, END = "<!-- incidents -->\n", "<!-- end of incidents -->\n"

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-7b": (
        "FSDP1 on 8 × A100-40GB, fp32 shards computed in fp16, 4 × 2,048 tokens",
        {
            "engine": "fsdp1", "dp": 8, "gpu": "a100-40g", "dtype": "float32", "autocast": "float16", "reduce_dtype": "float16",
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

TOLD = {
    "long-sample/longest": "a document twice as long, the batch padded to it",
    "attention-fallback/eager": "attention falls back from its fused kernel",
    "fp16-overflow/unscaled": "an fp16 overflow: gradients copied in fp32",
    "loss-on-logits/distillation": "a distillation loss on the full logits",
    "checkpoint-gathered": "the whole model gathered on every card to be saved",
    "checkpoint-save": "the engine's own save of the whole model",
    "evaluation/batch": "evaluation with the Trainer's default batch",
    "evaluation/logits": "evaluation that keeps the logits of 1,000 samples",
    "generation": "generation inside the training loop",
    "logging-activations/attention": "attention matrices returned by all layers",
    "moe-collapse/all": "the router sends all tokens to one rank",
    "fragmentation/segments": "lengths vary, segments do not grow",
}
"""Those of the README, in a newcomer's words."""


def struck() -> dict[str, Stressed]:
    """Every run under every incident."""
    return {name: stress(read_run(name, **keys)) for name, (_, keys) in RUNS.items()}


def table(found: dict[str, Stressed], only: dict[str, str] | None = None) -> str:
    """A row for each incident, or for some in words of their own; a column for each run."""
    names = only or {incident.name: f"`{incident.name}`" for incident in _every(found)}
    rows = [["as it is", *(f"{one.need_bytes / GiB:.1f} of {one.room.room_bytes / GiB:.1f}" for one in found.values())]]
    for name, said in names.items():
        rows.append([said, *(_cell(next((i for i in one.incidents if i.name == name), None)) for one in found.values())])
    return grid(rows, ["GiB on a card", *found])


def _every(found: dict[str, Stressed]) -> list[Incident]:
    """Each variant once, in the order of the scenarios; one that strikes no run under the name of its scenario."""
    order = scenarios.names()
    variants = {incident.name: incident for one in found.values() for incident in one.incidents}
    struck = {name.partition("/")[0] for name in variants if "/" in name}
    shown = [incident for name, incident in variants.items() if "/" in name or name not in struck]
    return sorted(shown, key=lambda incident: order.index(incident.name.partition("/")[0]))


def _cell(incident: Incident | None) -> str:
    if incident is None or incident.survives is None:
        return "·"
    more = incident.extra_bytes / GiB
    text = "nothing" if abs(more) < 0.005 else f"{more:+.2f}".replace("-", "−")
    return text if incident.survives else f"**{text} dies**"


def runs() -> str:
    """What the columns are."""
    return "\n".join(f"- `{name}`: {said}" for name, (said, _) in RUNS.items())


def put(page: Path, text: str) -> None:
    """Write between the marks of a page, where it has them."""
    before = page.read_text(encoding="utf-8")
    head, mark, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if mark and end:
        page.write_text(f"{head}{BEGIN}\n{text}\n\n{END}{tail}", encoding="utf-8")


def main() -> None:
    """Write both tables."""
    found = struck()
    put(PAGE, f"{runs()}\n\n{table(found)}")
    put(README, table(found, TOLD))


if __name__ == "__main__":
    main()
