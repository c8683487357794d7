"""``memcalc plan``: how to spread a run over its cards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memcalc.cli.estimate import LIMIT, MARGIN
from memcalc.cli.shell.command import Command, Given, Option
from memcalc.cli.shell.errors import DOES_NOT_FIT, FITS
from memcalc.cli.shell.files import FROM, asked
from memcalc.cli.shell.output import OUT_FILE, format_option, sink
from memcalc.cli.shell.runs import MODEL, run_options
from memcalc.errors import InputError
from memcalc.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from memcalc.specs.run import Run
    from memcalc.whatif.plan import Fitting, Plans

TOP = 10
TORCHRUN = "torchrun"
OF_FORMAT = {"megatron": ("megatron",), "deepspeed": ("deepspeed",), TORCHRUN: ("megatron", "ddp", "deepspeed")}
"""Engines of the plans that a format can say; the others say what is not Megatron's. transformers' Trainer takes FSDP2 from accelerate's file alone."""

MIXED = {"bfloat16": "--bf16", "float16": "--fp16"}
"""The Trainer's flags for what is computed in."""
BATCH = Option("global-batch", "sequences of one optimizer step, over all cards; for a server, sequences held at once", metavar="N", group="Plan")


def options() -> tuple[Option, ...]:
    """Flags of this command."""
    from memcalc.importers.export import exporters

    return (
        *run_options(),
        FROM,
        BATCH,
        Option("top", "how many plans are looked for", metavar="N", default=str(TOP), group="Plan"),
        Option("export", "write the cheapest plan that this format can say, instead", metavar="FORMAT", choices=(*exporters(), TORCHRUN), group="Plan"),
        LIMIT._replace(help="the card's capacity is at most this (75GiB, 80GB)"),
        MARGIN._replace(help="share of the card that must stay free", default="0%"),
        format_option("table", "json", "markdown", "csv"),
        OUT_FILE,
    )


def run(given: Given) -> int:
    """Do it."""
    from memcalc.whatif.limit import parse_margin
    from memcalc.whatif.plan import plan

    limit, margin, wanted_run = given.text("limit"), given.text("margin"), asked(given, given.arguments).run
    if wanted_run.task == "inference":
        return placed(given, wanted_run)
    found = plan(
        wanted_run,
        global_batch=_whole(given, "global-batch", None),
        limit_bytes=None if limit is None else parse_bytes(limit, where="--limit"),
        margin=0.0 if margin is None else parse_margin(margin, where="--margin"),
        top=_whole(given, "top", str(TOP)),
    )
    out = sink(given)
    wanted = given.text("export")
    if wanted is not None:
        out.write(exported(found, wanted))
        return FITS
    from memcalc.report import plan as report

    out.report(found, report)
    return FITS if found.fitting else DOES_NOT_FIT


def placed(given: Given, served: Run) -> int:
    """The same for a model that serves: degrees and replicas.

    Raises:
        InputError: flags of training's plans.
    """
    from memcalc.report import placements as report
    from memcalc.whatif.placements import place

    for name in ("limit", "margin", "export"):
        if given.text(name) is not None:
            raise InputError("is of plans of training; a server takes a share of its card, which its own keys say", where=f"--{name}")
    found = place(served, sequences=_whole(given, "global-batch", "1"))
    out = sink(given)
    out.report(found, report)
    return FITS if found.fewest is not None else DOES_NOT_FIT


def exported(found: Plans, wanted: str) -> str:
    """The cheapest plan that a format can say; which one is said on stderr.

    Raises:
        InputError: it can say none of them.
    """
    from memcalc.importers.export import export
    from memcalc.report.plan import name_of
    from memcalc.whatif.written import written

    reason = "no way fits"
    for one in found.fitting:
        engines = OF_FORMAT.get(wanted, ("ddp", "deepspeed", "fsdp2"))
        if one.way.engine not in engines:
            reason = f"none of the {len(found.fitting)} cheapest plans runs there; fix the engine with --engine, or look for more with --top"
            continue
        try:
            text, beside = (launch(one, export), ()) if wanted == TORCHRUN else written(one.run, wanted)
        except InputError as error:
            reason = str(error)
            continue
        left = f"; {wanted} has no words for {', '.join(beside)}" if beside else ""
        print(f"memcalc: {name_of(one.way)}{left}", file=sys.stderr)
        return text
    raise InputError(reason, where=f"--export {wanted}")


def launch(one: Fitting, export: Callable[[Run, str], str]) -> str:
    """A plan as a launch with torchrun: Megatron's script with its flags, or a script of transformers' Trainer with the other formats' files beside it."""
    gpus, node = one.run.hardware.gpus or 1, one.run.hardware.gpus_per_node
    start = f"torchrun --nnodes {-(-gpus // node)} --nproc-per-node {min(gpus, node)}"
    if one.way.engine == "megatron":
        return " \\\n  ".join([f"{start} pretrain_gpt.py", *export(one.run, "megatron").splitlines()]) + "\n"
    sharded = one.way.engine == "deepspeed"
    flags = [f"--per_device_train_batch_size {one.way.micro_batch}", f"--gradient_accumulation_steps {one.way.grad_accum}"]
    flags += [MIXED[low]] if (low := one.run.autocast or one.run.dtype) in MIXED else []
    flags += ["--gradient_checkpointing"] if one.way.recompute == "full" else []
    note = "# ds_config.json: memcalc plan … --export deepspeed\n" if sharded else ""
    return (
        note
        + " \\\n  ".join([f"{start} train.py", f"--model_name_or_path {one.run.model}", *flags, *(["--deepspeed ds_config.json"] if sharded else [])])
        + "\n"
    )


def _whole(given: Given, name: str, default: str | None) -> int:
    text = given.text(name) or default
    if text is None:
        raise InputError("how many sequences a step? a whole number is needed", where=f"--{name}")
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise InputError(f"{text!r} is not a whole number from 1, below 2^31", where=f"--{name}")
    return int(text)


COMMAND = Command(
    run,
    "How to spread a run over its cards: the ways that fit, by relative cost, and the three worth a trial; for a server, degrees and replicas.",
    (MODEL._replace(many=True),),
    options,
    example=(
        "memcalc plan llama-3.1-70b --gpus 64 --gpu h100-80g --global-batch 1024 --seq-len 8192",
        "memcalc plan llama-3.1-8b --gpus 8 --gpu a100-80g --global-batch 64 --engine deepspeed --export deepspeed",
    ),
    launches=True,
)
