"""What of fine-tuning goes together: losses, adapters, quantised bases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcalc.errors import InputError
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.specs.model import ModelSpec


def refuse_finetuning(run: Run, model: ModelSpec, *, engine: str, zero: int) -> None:
    """Say no to what is asked and cannot be given.

    Raises:
        InputError: a loss that the model's code or the engine cannot compute in this way.
    """
    if run.loss != "cross_entropy" and run.task == "train":
        _refuse_loss(run, model, engine=engine, zero=zero)


def _refuse_loss(run: Run, model: ModelSpec, *, engine: str, zero: int) -> None:
    from memcalc.components import Head

    if run.code != "transformers":
        raise InputError(f"loss {run.loss} replaces the head of transformers' models; code {run.code} has cross_entropy", where="loss")
    if run.sharding.tp > 1:
        raise InputError(f"loss {run.loss} takes the whole weight of the head, which tp {run.sharding.tp} cuts; use cross_entropy", where="loss")
    if engine == "deepspeed" and zero == 3:
        raise InputError(f"loss {run.loss} takes the head's weight past its module, where stage 3 gathers it; use cross_entropy", where="loss")
    heads = [block.module for block in model.blocks if block.role == "head"]
    if not heads or not all(type(head) is Head for head in heads):
        raise InputError(f"loss {run.loss} takes a head that is one projection, which {model.model_type} does not have; use cross_entropy", where="loss")
