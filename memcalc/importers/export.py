"""A run as a file or flags of another framework: the formats whose module can write one."""

from __future__ import annotations

from importlib import import_module

from memcalc.errors import InputError, UnknownNameError
from memcalc.importers.format import PACKAGE, formats
from memcalc.specs.read import Layer
from memcalc.specs.run import Run


def exporters() -> tuple[str, ...]:
    """The names of the formats that can be written."""
    return tuple(sorted(format_.name for format_ in formats() if hasattr(import_module(f"{PACKAGE}.{format_.name}"), "export")))


def export(run: Run, format_name: str) -> str:
    """A run in a format.

    Raises:
        UnknownNameError: none of that name is written.
        InputError: the format cannot say this run.
    """
    if run.task not in ("train", "inference"):
        raise InputError(f"runs of task {run.task} are not written: their trainers are started by commands of their own", where="task")
    if format_name not in exporters():
        raise UnknownNameError("format", format_name, exporters(), where="--to")
    written: str = import_module(f"{PACKAGE}.{format_name}").export(run)
    return written


def read_back(text: str, format_name: str, *, gpus: int | None) -> Layer:
    """What is read of a run that was written in a format, started on so many cards."""
    from memcalc.importers import import_files, import_text

    flags = {} if gpus is None else {"hardware.gpus": gpus}
    if format_name == "megatron":
        return import_files([], command=["torchrun", "--nproc-per-node", str(gpus or 1), "pretrain_gpt.py", *text.split()], flags=flags).layer
    if format_name == "vllm":
        return import_files([], command=text.split()).layer
    return import_text(text, name=f"{format_name}.{'toml' if format_name == 'torchtitan' else 'yaml'}", flags=flags).layer


__all__ = ["export", "exporters", "read_back"]
