"""Where in a step a traceback stands, by the files and functions of its frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Position(NamedTuple):
    """A stretch of a run.

    Attributes:
        name: in words.
        instants: those of the engine that fall into it.
        pattern: what a frame of it looks like (``file:function``).
    """

    name: str
    instants: tuple[str, ...]
    pattern: re.Pattern[str]


def _position(name: str, instants: tuple[str, ...], *patterns: str) -> Position:
    return Position(name, instants, re.compile("|".join(patterns)))


POSITIONS: tuple[Position, ...] = (
    _position("loading", ("initialize", "load"), r":from_pretrained$", r":_?load_(?:state_dict|model|pretrained|checkpoint)", r":(?:get|build|init)_model$"),
    _position(
        "checkpoint save",
        ("checkpoint_save",),
        r":_?save(?:_model|_checkpoint|_pretrained|_to_state_dict)?$",
        r":(?:get_|full_)?(?:model_)?state_dict$",
        r"_state_dict_utils\.py:",
        r":_?(?:consolidated_|zero3_consolidated_)16bit_state_dict$",
    ),
    _position("evaluation", ("evaluation",), r":(?:evaluate|evaluation_loop|prediction_loop|prediction_step|validate|validation_step)$"),
    _position("generation", ("decode", "prefill"), r":generate$", r"generation/utils\.py:"),
    _position(
        "optimizer step",
        ("optimizer_step",),
        r"torch/optim/\w+\.py:",
        r"bitsandbytes/optim/",
        r"optimizers?/\w*(?:adam|lion|optimizer)\w*\.py:",
        r":_optimizer_step$",
        r":optimizer_step$",
    ),
    _position("optimizer step", ("optimizer_step",), r"runtime/(?:zero/stage\w*|fp16/\w+|bf16_optimizer)\.py:(?:step|_?unscale\w*|get_grad_norm\w*)$"),
    _position(
        "engine construction",
        ("initialize",),
        r"deepspeed/__init__\.py:initialize$",
        r":_configure_(?:zero_)?optimizer$",
        r"zero/stage\w*\.py:__init__$",
        r":_prepare_deepspeed$",
    ),
    _position(
        "backward",
        ("backward_peak",),
        r"torch/autograd/__init__\.py:backward$",
        r":_engine_run_backward$",
        r"_tensor\.py:backward$",
        r"checkpoint\.py:backward$",
    ),
    _position(
        "loss",
        ("forward_peak", "backward_peak"),
        r":cross_entropy$",
        r"modules/loss\.py:",
        r"loss_utils\.py:",
        r":convert_to_fp32$",
        r":_convert_to_fp32$",
        r":log_softmax$",
    ),
    _position(
        "gathering of weights",
        ("forward_peak", "backward_peak"),
        r":_?all_gather\w*$",
        r":fetch_sub_module$",
        r":_?unshard\w*$",
        r"_runtime_utils\.py:_pre_forward\w*$",
    ),
    _position("forward", ("forward_peak",), r":forward$", r":_call_impl$"),
)
"""The more telling first: a trainer's own frames stand above all of them."""


def position_of(frames: Sequence[str], text: str = "") -> Position | None:
    """Where a traceback stands; None where it does not tell.

    Args:
        frames: ``file:function``.
        text: the message, whose own words may say it.
    """
    if "Failed to clone() tensor" in text or "state_dict" in text:
        return next(p for p in POSITIONS if p.name == "checkpoint save")
    for position in POSITIONS:
        if any(position.pattern.search(frame) for frame in frames):
            return position
    return None
