"""memcalc against other people's measured runs: signed errors, quantiles, and the page that shows them.

``tests/data/measured.json`` holds the facts: ``runs`` (``run`` in the keys of a run file, or ``command``, the place of a launch command in
``tests/data/launch/ms_swift_argv.json``, which goes through the importers, with what ``run`` says on top; the ``counter`` that was read,
``allocated``, ``reserved`` or ``device``, or the ``instant`` that the figure is of; ``value_gib``, or ``died`` of memory; ``device_gib``, what
nvidia-smi showed beside it; ``config``, a model's config.json, where the catalogue has none; ``rank``, where the figure is not of the
most loaded one; ``why``, a key of ``reasons``), ``left`` (runs that cannot be put to memcalc, and why) and ``reasons``.

``python -m tests.accuracy`` writes ``docs/accuracy.md``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from memcalc.engine import allocator, lengths
from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate, RankEstimate
from memcalc.engine.verdict import WORKSPACES
from memcalc.formulas import overheads
from memcalc.importers import import_files
from memcalc.report.words import DOES_NOT_FIT, FITS, TIGHT, state
from memcalc.specs.read import Layer, merged
from memcalc.specs.run import Run
from memcalc.units import GiB

FACTS = Path(__file__).parent / "data" / "measured.json"
COMMANDS = Path(__file__).parent / "data" / "launch" / "ms_swift_argv.json"
PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
NUM_WORST = 10


@dataclass(frozen=True)
class Measured:
    """One run of other people's."""

    id: str
    group: str
    framework: str
    method: str
    counter: str
    confidence: str
    run: dict[str, Any] = field(default_factory=dict)
    command: int | None = None
    value_gib: float | None = None
    device_gib: float | None = None
    died: bool = False
    instant: str | None = None
    config: dict[str, Any] | None = None
    rank: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class Compared:
    """A run with memcalc's answer.

    Attributes:
        gib: what the counter would have read.
        device: what nvidia-smi would have shown, in GiB, where somebody looked.
        says: the verdict, where a card is known.
        peak: the instant in which the most is allocated.
    """

    measured: Measured
    gib: float
    device: float | None
    says: str | None
    peak: str

    @property
    def error(self) -> float:
        """Estimated over measured, less one; of a run that has a figure."""
        assert self.measured.value_gib is not None
        return self.gib / self.measured.value_gib - 1


@dataclass(frozen=True)
class Facts:
    """The whole file."""

    runs: list[Measured]
    left: list[dict[str, str]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


def load() -> Facts:
    """The facts."""
    facts = json.loads(FACTS.read_text())
    return Facts([Measured(**run) for run in facts["runs"]], facts["left"], facts["reasons"])


@cache
def commands() -> list[list[str]]:
    """Launch commands whose authors noted the memory that they took."""
    return list(json.loads(COMMANDS.read_text()))


def answer(measured: Measured) -> Estimate:
    """memcalc's estimate of the run."""
    with tempfile.TemporaryDirectory() as folder:
        if measured.command is not None:
            return estimate(merged([import_files([], command=commands()[measured.command]).layer, Layer(measured.run)]))
        if measured.config is None:
            return estimate(Run.model_validate(measured.run))
        Path(folder, "config.json").write_text(json.dumps(measured.config))
        return estimate(Run.model_validate({"model": folder, **measured.run}))


def compare(measured: Measured) -> Compared:
    """The run beside memcalc's answer."""
    found = answer(measured)
    rank = max(found.ranks, key=lambda r: r.rank["pp"]) if measured.rank == "last" else found.ranks[0]
    num_bytes = _READ[measured.instant or measured.counter](rank)
    device = rank.device_bytes / GiB if measured.device_gib is not None else None
    return Compared(measured, num_bytes / GiB, device, state(found.verdict) if found.verdict else None, rank.peak.name)


def _weights(rank: RankEstimate) -> int:
    return sum(t.bytes for t in rank.instants[0].terms if t.path.startswith("weights/"))


def _workspaces(rank: RankEstimate) -> int:
    """Of libraries: torch's allocator hands them out, so that its counters hold them."""
    return sum(term.bytes for term in rank.device if term.path == WORKSPACES)


def _at(name: str) -> Callable[[RankEstimate], int]:
    return lambda rank: next(i for i in rank.instants if i.name == name).allocated_bytes


_READ: dict[str, Callable[[RankEstimate], int]] = {
    "allocated": lambda rank: rank.allocated_bytes + _workspaces(rank),
    "reserved": lambda rank: rank.reserved_bytes + _workspaces(rank),
    "device": lambda rank: rank.device_bytes,
    "weights": _weights,
    "start": _at("start"),
    "decode": _at("decode"),
}


def quantile(values: Iterable[float], part: float) -> float:
    """The smallest value that at least that part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


def size_of_errors(rows: Iterable[Compared]) -> list[float]:
    """Absolute errors of the runs that have a figure."""
    return [abs(row.error) for row in rows if not row.measured.died]


def beside_bench(rows: Iterable[Compared]) -> list[Compared]:
    """Runs that are not of the one bench that near half of them come from, whose rows are alike."""
    return [row for row in rows if not row.measured.group.startswith("fms_")]


def device_errors(rows: Iterable[Compared]) -> list[float]:
    """Signed errors against nvidia-smi, of the runs that have its figure."""
    return [row.device / row.measured.device_gib - 1 for row in rows if row.device is not None and row.measured.device_gib and not row.measured.died]


def wrong_verdicts(rows: Iterable[Compared]) -> list[str]:
    """Runs that died and are said to fit, and runs that worked and are said not to; tight is neither."""
    return [row.measured.id for row in rows if row.says == (FITS if row.measured.died else DOES_NOT_FIT)]


# ---------------------------------------------------------------------- the page
HEAD = """# Accuracy on measured runs

Other people's runs, each against its own counter. Written by `make accuracy`; the facts are in `tests/data/measured.json`. An error is
estimated over measured, less one: below zero memcalc says less than was seen.

Inference with LitGPT, and NeMo Automodel's training under `fsdp2` with its own checkpoints, run here as transformers' modules. Figures of
reserved memory hold the history of the caching allocator: memcalc replays equal steps, or with `lengths` steps of several. The runs of ms-swift
are its own launch commands, read as they are; their figures are comments in its examples, whose counter is not stated: they are compared with
reserved memory, which fits those without Megatron, while those with it look like nvidia-smi's (see what is missing); that their confidence is
low is said here, not by them. Near half of the runs of high or medium confidence are of one bench: without it the median is within a twentieth
as well, and nine in ten are within a tenth.
"""


TORCH, READ = "torch, c10/cuda/CUDACachingAllocator.cpp", "read on cards, see memcalc/formulas/overheads.py"
CONSTANTS = (
    ("caching allocator", "MIN_BLOCK_BYTES", allocator.MIN_BLOCK_BYTES, f"{TORCH}, kMinBlockSize"),
    ("caching allocator", "SMALL_BYTES", allocator.SMALL_BYTES, f"{TORCH}, kSmallSize"),
    ("caching allocator", "SMALL_SEGMENT_BYTES", allocator.SMALL_SEGMENT_BYTES, f"{TORCH}, kSmallBuffer"),
    ("caching allocator", "LARGE_SEGMENT_BYTES", allocator.LARGE_SEGMENT_BYTES, f"{TORCH}, kLargeBuffer"),
    ("caching allocator", "MIN_LARGE_BYTES", allocator.MIN_LARGE_BYTES, f"{TORCH}, kMinLargeAlloc"),
    ("caching allocator", "ROUND_LARGE_BYTES", allocator.ROUND_LARGE_BYTES, f"{TORCH}, kRoundLarge"),
    ("lengths that vary", "NUM_LENGTHS", lengths.NUM_LENGTHS, "a convention of memcalc's"),
    ("context", "CUDA_CONTEXT_BYTES", overheads.CUDA_CONTEXT_BYTES, READ),
    ("libraries", "CUBLAS_WORKSPACE_BYTES", overheads.CUBLAS_WORKSPACE_BYTES, "torch, aten/src/ATen/cuda/CublasHandlePool.cpp"),
    ("libraries, Hopper and later", "HOPPER_WORKSPACE_BYTES", overheads.HOPPER_WORKSPACE_BYTES, "torch, aten/src/ATen/cuda/CublasHandlePool.cpp"),
    ("libraries", "CUBLASLT_WORKSPACE_BYTES", overheads.CUBLASLT_WORKSPACE_BYTES, "torch, aten/src/ATen/cuda/CUDABlas.cpp"),
    ("communicator of two ranks", "NCCL_PAIR_BYTES", overheads.NCCL_PAIR_BYTES, "aiconfigurator, systems/*.yaml, nccl_mem"),
    ("communicator of more", "NCCL_GROUP_BYTES", overheads.NCCL_GROUP_BYTES, "aiconfigurator, systems/*.yaml, nccl_mem"),
)
"""What the distance from allocated bytes to the card is made of. Buckets and gathered weights are the engines' own (memcalc/engine/strategies)."""


NVIDIA = """Some runs were watched with nvidia-smi, too. Signed errors of the device figure, which holds the history of the caching allocator. What is
missing of runs on several cards is about 1 GiB of NCCL's: a communicator is counted with what aiconfigurator read, 342 to 392 MiB; another
reading, of two ranks before and after their first barrier, is 1485 MiB. With that the median error of these runs would be 5 %, not 8 %, and one
run that worked with nothing of its card to spare would be said not to fit. Where the loss is FOAK's, in place, one more copy of the logits in
fp32 is reserved than memcalc plays; why is not known."""


def page(facts: Facts, rows: list[Compared]) -> str:
    """docs/accuracy.md."""
    parts = [
        HEAD,
        "## Quantiles\n",
        *_quantiles(rows),
        "\n## Against nvidia-smi\n",
        *_device(rows),
        "\n## From allocated bytes to the card\n",
        *_constants(),
        "\n## Verdicts\n",
        *_verdicts(rows),
        f"\n## The worst {NUM_WORST}\n",
        *_worst(facts, rows),
    ]
    parts += ["\n## What is missing\n", *_reasons(facts, rows), "\n## Every run\n", *_all(rows), "\n## Runs that were not put to memcalc\n", *_left(facts)]
    return "\n".join(parts) + "\n"


def _quantiles(rows: list[Compared]) -> list[str]:
    lines = ["| runs | | count | median | nine in ten | worst |", "|---|---|--:|--:|--:|--:|"]
    kinds = [("all", "", rows)]
    known = [r for r in rows if r.measured.confidence in ("high", "medium")]
    kinds += [("confidence", "high or medium", known)]
    kinds += [("of these", "not of IBM's bench (fms)", beside_bench(known))]
    kinds += [("confidence", c, [r for r in rows if r.measured.confidence == c]) for c in ("high", "medium", "low")]
    kinds += [("counter of these", c, [r for r in known if (r.measured.instant or r.measured.counter) == c]) for c in ("allocated", "reserved")]
    groups = dict.fromkeys((r.measured.group, r.measured.method) for r in rows)
    kinds += [(g, m, [r for r in rows if (r.measured.group, r.measured.method) == (g, m)]) for g, m in groups]
    for name, method, members in kinds:
        sizes = size_of_errors(members)
        if sizes:
            shown = " | ".join(f"{100 * quantile(sizes, part):.1f} %" for part in (0.5, 0.9, 1))
            lines.append(f"| {name} | {method} | {len(sizes)} | {shown} |")
    return lines


def _device(rows: list[Compared]) -> list[str]:
    lines = [NVIDIA, ""]
    lines += ["| runs | count | one in ten below | median | one in ten above |", "|---|--:|--:|--:|--:|"]
    for group in dict.fromkeys(r.measured.group for r in rows):
        found = device_errors(r for r in rows if r.measured.group == group)
        if found:
            shown = " | ".join(f"{100 * quantile(found, part):+.1f} %" for part in (0.1, 0.5, 0.9))
            lines.append(f"| {group} | {len(found)} | {shown} |")
    return lines


def _constants() -> list[str]:
    lines = ["What stands between the tensors and what nvidia-smi shows is played or added, never fitted; each constant is somebody's.", ""]
    lines += ["| what | constant | value | whose |", "|---|---|--:|---|"]
    return lines + [f"| {what} | `{name}` | {value:,} | {whose} |" for what, name, value, whose in CONSTANTS]


def _verdicts(rows: list[Compared]) -> list[str]:
    lines = ["On a card that is known; tight leaves less than the margin, by default 5 %.", ""]
    lines += [f"| runs | {FITS} | {TIGHT} | {DOES_NOT_FIT} |", "|---|--:|--:|--:|"]
    for name, died in (("worked", False), ("ran out of memory", True)):
        counts = [sum(r.says == word for r in rows if r.measured.died is died) for word in (FITS, TIGHT, DOES_NOT_FIT)]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    named = [(r, "ran out of memory" if r.measured.died else "worked") for r in rows if r.says == TIGHT]
    lines += ["", "Tight: " + ", ".join(f"`{r.measured.id}` ({what})" for r, what in named) + "."] if named else []
    return lines + [f"- wrong: `{name}`" for name in wrong_verdicts(rows)]


def _worst(facts: Facts, rows: list[Compared]) -> list[str]:
    known = sorted((r for r in rows if not r.measured.died), key=lambda r: -abs(r.error))[:NUM_WORST]
    lines = ["| run | measured | estimated | error | what explains it |", "|---|--:|--:|--:|---|"]
    return lines + [f"{_figures(r)} {facts.reasons.get(r.measured.why or '', 'not known')} |" for r in known]


def _figures(row: Compared) -> str:
    return f"| {row.measured.id} | {row.measured.value_gib:.2f} | {row.gib:.2f} | {100 * row.error:+.1f} % |"


def _reasons(facts: Facts, rows: list[Compared]) -> list[str]:
    lines = []
    for key, text in facts.reasons.items():
        errors = [r.error for r in rows if r.measured.why == key and not r.measured.died]
        spread = f" ({len(errors)} runs, {100 * min(errors):+.0f} % to {100 * max(errors):+.0f} %)" if errors else ""
        lines.append(f"- **{key}**{spread}: {text}")
    return lines


def _all(rows: list[Compared]) -> list[str]:
    lines = ["| run | counter | measured GiB | estimated GiB | error | verdict | confidence | note |", "|---|---|--:|--:|--:|---|---|---|"]
    for row in rows:
        of = row.measured
        figures = f"{of.value_gib:.2f} | {row.gib:.2f} | {100 * row.error:+.1f} %" if not of.died else f"died | {row.gib:.2f} | "
        lines.append(f"| {of.id} | {of.instant or of.counter} | {figures} | {row.says or ''} | {of.confidence} | {of.why or ''} |")
    return lines


def _left(facts: Facts) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for run in facts.left:
        by_reason.setdefault(run["why"], []).append(run["id"])
    return [f"- {reason}: {', '.join(ids)}" for reason, ids in by_reason.items()]


def main() -> None:
    """Write the page."""
    facts = load()
    PAGE.write_text(page(facts, [compare(run) for run in facts.runs]))


if __name__ == "__main__":
    main()
