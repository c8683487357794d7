"""A diagnosis in words: what the numbers of each message mean, which tensor it was, what it comes from."""

from __future__ import annotations

import json
from typing import Any

from memcalc.report import words
from memcalc.report.contract import SCHEMA_VERSION
from memcalc.report.explain import substituted
from memcalc.report.style import BOLD, DIM, GREEN, YELLOW, Style, unit_for, wrap
from memcalc.whatif.diagnose import Diagnosis, Finding
from memcalc.whatif.diagnose.causes import Cause
from memcalc.whatif.diagnose.match import Match
from memcalc.whatif.diagnose.message import Message
from memcalc.whatif.diagnose.wordings.vllm import SAMPLER

SHOWN = 4
"""Tensors of one size that are shown."""

INDENT = "  "


def text(found: Diagnosis, style: Style) -> str:
    """All findings."""
    if not found.findings:
        return f"no out-of-memory message in {found.num_lines:,} lines"
    return "\n\n".join(_finding(finding, style) for finding in found.findings)


def markdown(found: Diagnosis) -> str:
    """The same for a page."""
    if not found.findings:
        return text(found, Style())
    return "\n\n".join("\n".join([f"**{head(f)}**", "", *(f"- {line}" for line in lines(f))]) for f in found.findings)


def head(finding: Finding) -> str:
    """Who ran out, where in the log."""
    crash, m = finding.crash, finding.crash.message
    who = f"rank {crash.rank}" if crash.rank else f"card {m.gpu}" if m.gpu is not None else "a process"
    times = f", {crash.times} times" if crash.times > 1 else ""
    return f"line {crash.line:,}{times}: {who}: {_what(m)}"


def lines(finding: Finding) -> list[str]:
    """What is to be said of one finding, a sentence each."""
    found = [line for line in (numbers(finding.crash.message), place(finding)) if line]
    found += [match_line(match, n) for n, match in enumerate(finding.matches[:SHOWN])]
    if finding.asked is not None and finding.asked.serving is None and finding.crash.message.wanted is not None and not finding.matches:
        found.append("no tensor of the run has that size: is this its run?")
    return found + [cause_line(cause) for cause in finding.causes]


def numbers(m: Message) -> str:
    """What the message's numbers mean."""
    parts = []
    if m.allocated is not None and m.kind == "device":
        parts.append(f"{_g(m.allocated.bytes)} stood in tensors")
    if m.unallocated_bytes:
        parts.append(f"{_g(m.unallocated_bytes)} were reserved by torch and in no tensor")
    if m.free is not None:
        parts.append(f"{_g(m.free.bytes)} were free on the card")
    if m.others:
        held = sum(size.bytes for _, size in m.others)
        parts.append(
            f"{_g(held)} were held by {len(m.others)} other process{'es' if len(m.others) > 1 else ''} (PID {', '.join(str(pid) for pid, _ in m.others)})"
        )
    elif m.outside_bytes is not None:
        parts.append(f"{_g(m.outside_bytes)} stood outside torch's allocator: context, libraries, other processes")
    said = ", ".join(parts)
    capacity = f", of {_g(m.capacity.bytes)}" if m.capacity is not None and m.kind == "device" else ""
    return f"when the request failed{capacity}, {said}" if said else ""


def place(finding: Finding) -> str:
    """Where in the run."""
    parts = [f"in {finding.position.name}" if finding.position is not None else ""]
    if finding.crash.step is not None:
        parts.append(f"after step {finding.crash.step:,}")
    said = ", ".join(part for part in parts if part)
    return f"where: {said}" if said else ""


def match_line(match: Match, n: int = 0) -> str:
    """Which tensor it is."""
    request = match.request
    verb = {"exact": "it is", "at another length": f"at {match.seq_len:,} tokens a sequence it is", "near": "near"}[match.how]
    verb = verb if n == 0 else f"or {verb}" if match.how == "exact" else verb
    others = f" (as large: {', '.join(match.alike[:3])}{', …' if len(match.alike) > 3 else ''})" if match.alike else ""
    supposed = ", if attention falls back to the eager kernel" if request.supposed else ""
    inputs = request.inputs | ({"seq_len": match.seq_len} if "seq_len" in request.inputs else {})
    beside = f"; the estimate has {_g(match.alive_bytes)} alive beside it" if match.how == "exact" and match.alive_bytes else ""
    return f"{verb} {request.name}{supposed}: {_derived(request.formula, inputs)} = {_g(match.bytes)}{others}{beside}"


def cause_line(cause: Cause) -> str:
    """What it comes from, and what helps."""
    return f"cause: {WORDS[cause.name](cause.facts)}"


def as_json(found: Diagnosis) -> str:
    """As data."""
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "num_lines": found.num_lines, "findings": [_data(finding) for finding in found.findings]}
    return json.dumps(data, indent=1, ensure_ascii=False)


# ---------------------------------------------------------------------- causes
def _fragmentation(f: dict[str, Any]) -> str:
    there = f"{_g(f['unallocated_bytes'])} reserved and unused with {_g(f['free_bytes'])} free are more than the {_g(f['wanted_bytes'])} that failed"
    return f"fragmentation: {there}, but in pieces; {words.EXPANDABLE} lets segments grow instead"


def _long_sample(f: dict[str, Any]) -> str:
    late = f"step {f['step']:,} had been reached, so a usual batch fits" if f.get("step") else "the size belongs to a length of its own"
    length = f"; this batch was {f['seq_len']:,} tokens long" if f.get("seq_len") else ""
    most = f"; the card takes up to {f['fitting_seq_len']:,} of the {f['asked_seq_len']:,} tokens asked for" if f.get("fitting_seq_len") else ""
    return f"a long sample: {late}{length}{most}: cut or drop what is longer, or compute the loss in pieces"


def _not_sharded(f: dict[str, Any]) -> str:
    return (
        f"the model was put whole on every rank: {_g(f['whole_bytes'])} are all of its weights in {f['width']} bytes each, "
        f"where a share of {f['ranks']} is {_g(f['share_bytes'])}; build it under zero.Init (zero3_init_flag), or on the meta device"
    )


def _saving(f: dict[str, Any]) -> str:
    sizes = f" ({_g(f['fp32_bytes'])} in fp32, {_g(f['half_bytes'])} in 16 bits)" if f["fp32_bytes"] else ""
    return f"a checkpoint: a full state dict gathers the whole model on the card{sizes}; offload it to the host on rank 0, or save shards"


def _refused(f: dict[str, Any]) -> str:
    if f["engine"] == SAMPLER:
        return (
            f"the sampler sorts logits of {f['tokens'][0]:,} sequences at once, which find no room beside the cache: lower max_num_seqs, or the server's share"
        )
    if f.get("free_bytes") and f["wanted_bytes"] and f["there_bytes"]:
        taken, most = f["there_bytes"] - f["free_bytes"], 100 * f["free_bytes"] // f["there_bytes"] / 100
        share = f"{f['engine']} asks for {_g(f['wanted_bytes'])} of {_g(f['there_bytes'])}, and {_g(f['free_bytes'])} are free"
        return f"{share}: {_g(taken)} are taken already, by other processes or its own context; end them, or give a share of {most:.2f}"
    parts = [f"{f['engine']} would not start or go on: what its share of the card leaves for cache is too little"]
    if f["tokens"]:
        parts.append(f"{f['tokens'][0]:,} tokens asked for, room for {f['tokens'][1]:,}")
    if f["wanted_bytes"] and f["there_bytes"]:
        parts.append(f"{_g(f['wanted_bytes'])} wanted, {_g(f['there_bytes'])} there")
    if f["estimated_model_len"] is not None:
        parts.append(f"the estimate's longest sequence: {f['estimated_model_len']:,}")
    if f.get("host_blocks"):
        found = f"its {f['host_blocks']:,} blocks on the host, of 4 GiB and 16 tokens, are {f['swapped_token_bytes']:,} bytes a token on each card"
        parts.append(found + (f": tensor parallelism {f['tp']}{'' if f['tp'] == f['asked_tp'] else ', not ' + str(f['asked_tp'])}" if f.get("tp") else ""))
    if f["tokens"] and f.get("token_bytes") and f.get("tp", f.get("asked_tp")) == f.get("asked_tp"):
        asked, there = (n * f["token_bytes"] for n in f["tokens"])
        parts.append(f"{_g(f['weights_bytes'])} of weights on a card leave {_g(there)} where {_g(asked)} are needed: give a larger share, or more cards")
    return "; ".join(parts)


def _loading(f: dict[str, Any]) -> str:
    return (
        f"still at load: {_g(f['allocated_bytes'])} stand in tensors, more than the {_g(f['budget_bytes'])} that the server takes for all; "
        f"its packed weights are {_g(f['weights_bytes'])} in steady state, and "
        f"stand twice ({_g(2 * f['weights_bytes'])}), or unpacked, while they are put in the kernels' order"
    )


def _beside(f: dict[str, Any]) -> str:
    by = f", by {f['lower_by']:.2f} or more" if f["lower_by"] else ""
    return (
        "the server's share of the card leaves too little beside it for a step or a request (activations, images, graphs): "
        f"lower {f['key']}{by}, or the tokens and sequences of a step; a larger share makes it worse"
    )


def _host(f: dict[str, Any]) -> str:
    held = f": the process held {_g(f['held_bytes'])}" if f["held_bytes"] else ""
    needs = f"; the estimate has {_g(f['estimate_bytes'])} for the ranks of one node" if f["estimate_bytes"] else ""
    last = f"; {_g(f['last_bytes'])} of {_g(f['there_bytes'])} were in use when DeepSpeed last said so" if "last_bytes" in f else ""
    return f"the host ran out of memory, not a card{held}{last}{needs}: fewer workers, no pinned copies, or offload to NVMe"


def _full(f: dict[str, Any]) -> str:
    short = f": {_g(f['short_bytes'])} too little, with all that was reserved and unused" if f["short_bytes"] else ""
    if f.get("is_beyond"):
        return f"one tensor is larger than the whole card{short}: scores or logits of a very long sequence, or a size that went wrong"
    return f"the card is full{short}"


WORDS: dict[str, Any] = {
    "fragmentation": _fragmentation,
    "long sample": _long_sample,
    "whole model on every rank": _not_sharded,
    "checkpoint save": _saving,
    "refusal": _refused,
    "loading": _loading,
    "beside its share": _beside,
    "host memory": _host,
    "evaluation": lambda _: "an evaluation, not the step: its batches are larger, or their logits are kept (eval_accumulation_steps, prediction_loss_only)",
    "library": lambda f: (
        f"torch's allocator left {f['name']} no room for its own workspace: cap it (torch.cuda.set_per_process_memory_fraction), or lower the batch"
    ),
    "other processes": lambda f: (
        f"{f['num_processes']} other process{'es hold' if f['num_processes'] > 1 else ' holds'} {_g(f['held_bytes'])} of this card, "
        "more than what failed: ranks that all open card 0, or another job"
    ),
    "more than the run needs": lambda f: (
        f"{_g(f['allocated_bytes'])} were allocated where the run as given needs at most {_g(f['need_bytes'])} "
        f"({words.instant(f['instant'])}): it is still being loaded, or not run as given"
    ),
    "does not fit": lambda f: (
        f"the run does not fit: it needs {_g(f['need_bytes'])} in {words.instant(f['instant'])}, of {_g(f['room_bytes'])}"
        + (", in pieces that the allocator cannot place" if f["need_bytes"] <= f["room_bytes"] else "")
    ),
    "full": _full,
}
"""A sentence for each kind of cause."""


# ---------------------------------------------------------------------- inside
def _finding(finding: Finding, style: Style) -> str:
    colours = {"cause": YELLOW, "it is": GREEN, "at": GREEN}
    said = []
    for line in lines(finding):
        colour = next((code for start, code in colours.items() if line.startswith(start)), DIM if line.startswith("near") else "")
        shown = INDENT + wrap(line, style.width - len(INDENT), indent=INDENT * 2)
        said.append("\n".join(style.paint(part, *([colour] if colour else [])) for part in shown.split("\n")))
    return "\n".join([style.paint(wrap(head(finding), style.width), BOLD), *said])


def _what(m: Message) -> str:
    if m.kind == "host":
        return f"host memory ran out ({m.wording})"
    if m.kind == "refusal":
        return f"{m.wording} refused"
    if m.kind == "library":
        return f"{m.wording} found no memory"
    wanted = f"{_g(m.wanted.bytes)} could not be had" if m.wanted is not None else "out of memory, without a size"
    return f"{wanted} ({m.wording})"


def _derived(formula: str, inputs: dict[str, Any]) -> str:
    numbers = substituted(formula, inputs)
    return formula if numbers == formula else f"{formula} = {numbers}"


def _g(num_bytes: float) -> str:
    return unit_for(num_bytes).full(num_bytes)


def _data(finding: Finding) -> dict[str, Any]:
    crash, m = finding.crash, finding.crash.message
    sizes = {
        f"{name}_bytes": None if (size := getattr(m, name)) is None else size.bytes
        for name in ("wanted", "capacity", "allocated", "reserved", "free", "process")
    }
    return {
        "line": crash.line,
        "rank": crash.rank or None,
        "gpu": m.gpu,
        "step": crash.step,
        "times": crash.times,
        "kind": m.kind,
        "wording": m.wording,
        **sizes,
        "other_processes": [{"pid": pid, "bytes": size.bytes} for pid, size in m.others],
        "position": None if finding.position is None else finding.position.name,
        "tensors": [
            {
                "name": match.request.name,
                "match": match.how,
                "bytes": match.bytes,
                "seq_len": match.seq_len,
                "formula": match.request.formula,
                "inputs": match.request.inputs,
                "alike": list(match.alike),
            }
            for match in finding.matches
        ],
        "causes": [{"name": cause.name, **cause.facts} for cause in finding.causes],
    }
