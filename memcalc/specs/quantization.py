"""Quantization: how the weights of a checkpoint are stored, and which of them are not quantised."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from memcalc.dataclass import dataclass
from memcalc.formulas import quantization as formulas

Kind = Literal["nf4", "int8", "gptq", "awq", "fp8_block", "scaled", "packed", "mxfp4", "nvfp4", "affine"]


@dataclass(frozen=True)
class Scheme:
    """How one weight is stored.

    Attributes:
        kind: which formula; ``nf4`` is that of bitsandbytes' FP4, too, and ``scaled`` of one byte with scales for the tensor or its outputs.
        bits: of a value.
        group: inputs that share a scale; not above 0: all.
        block: outputs and inputs that share a scale.
        double_quant: scales are quantised, too.
        zero_point: groups have one.
        has_order: a group number for each input stands beside them.
        by_output: a scale for each output, not one for all.
        scale_width: bytes of a scale.
        input_scale: a fixed scale of the inputs stands beside it.
    """

    kind: Kind
    bits: int
    group: int = 128
    block: tuple[int, int] = (128, 128)
    double_quant: bool = False
    zero_point: bool = False
    has_order: bool = False
    by_output: bool = False
    scale_width: int = 2
    input_scale: bool = False

    def weight_bytes(self, rows: Any, columns: Any) -> Any:
        """Stored bytes of one weight (out_features × in_features) with all that belongs to it.

        >>> Scheme("mxfp4", 4).weight_bytes(2880, 2880)
        4406400
        """
        return _FORMULAS[self.kind](self, rows, columns)


_FORMULAS: dict[str, Callable[[Scheme, Any, Any], Any]] = {
    "nf4": lambda s, rows, columns: formulas.nf4_bytes(rows * columns, double_quant=s.double_quant),
    "int8": lambda _, rows, columns: formulas.int8_bytes(rows, columns),
    "gptq": lambda s, rows, columns: formulas.gptq_bytes(
        rows, columns, bits=s.bits, group=s.group, scale_width=s.scale_width, has_order=s.has_order
    ),
    "awq": lambda s, rows, columns: formulas.awq_bytes(
        rows, columns, bits=s.bits, group=s.group, scale_width=s.scale_width, zero_point=s.zero_point
    ),
    "fp8_block": lambda s, rows, columns: formulas.fp8_block_bytes(rows, columns, block=s.block, scale_width=s.scale_width),
    "scaled": lambda s, rows, columns: formulas.scaled_bytes(
        rows, columns, scales=rows if s.by_output else 1, scale_width=s.scale_width, input_scale=s.input_scale
    ),
    "packed": lambda s, rows, columns: formulas.packed_bytes(
        rows, columns, bits=s.bits, group=s.group, scale_width=s.scale_width, zero_point=s.zero_point
    ),
    "mxfp4": lambda _, rows, columns: formulas.mxfp4_bytes(rows * columns),
    "nvfp4": lambda s, rows, columns: formulas.nvfp4_bytes(rows * columns, block=s.group, input_scale=s.input_scale),
    "affine": lambda s, rows, columns: formulas.affine_bytes(rows, columns, bits=s.bits, group=s.group, scale_width=s.scale_width),
}  # fmt: skip


class Module(NamedTuple):
    """A linear layer, or the projection of experts.

    Attributes:
        names: those that it may have in the model's code (``model.layers.0.mlp.up_proj``), with dots.
        place: where it stands.
        is_expert: it belongs to routed experts.
        is_stacked: those of all experts stand in one tensor.
    """

    names: tuple[str, ...]
    place: Literal["layer", "head", "elsewhere"] = "layer"
    is_expert: bool = False
    is_stacked: bool = False


@dataclass(frozen=True)
class Rule:
    """Which modules are stored how.

    Attributes:
        scheme: how.
        pattern: a regular expression that a module's whole name must match from its beginning; empty: all linear layers.
    """

    scheme: Scheme
    pattern: str = ""


@dataclass(frozen=True)
class Quantization:
    """What a ``quantization_config`` says.

    Attributes:
        method: ``quant_method``.
        name: what people call it (``nf4``, ``gptq 4-bit``), for reports.
        rules: the first that fits a module holds.
        skipped: regular expressions; a module whose name begins as one says, up to a dot, is not quantised.
        endings: nor is one whose name ends so.
        plain_head: nor is the output projection.
        stacked: experts whose weights are stacked in one tensor are quantised, too.
        layers_only: what stands outside the layers is not quantised.
        experts_only: only experts are.
        training: what becomes of the weights in fine-tuning: ``adapters`` (they stay, adapters are trained), ``dequantised`` (they are
            brought back to the model's dtype first).
    """

    method: str
    name: str
    rules: tuple[Rule, ...]
    skipped: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    plain_head: bool = False
    stacked: bool = True
    layers_only: bool = False
    experts_only: bool = False
    training: Literal["adapters", "dequantised"] = "adapters"

    def scheme_for(self, module: Module) -> Scheme | None:
        """How a module's weight is stored; None where it is not quantised."""
        outside = (self.layers_only and module.place != "layer") or (self.plain_head and module.place == "head")
        if outside or (self.experts_only and not module.is_expert) or (module.is_stacked and not self.stacked):
            return None
        if self.endings and any(name.endswith(self.endings) for name in module.names):
            return None
        if self.skipped and any(_compiled(self.skipped).match(name) for name in module.names):
            return None
        return next((r.scheme for r in self.rules if not r.pattern or any(re.match(r.pattern, name) for name in module.names)), None)


_BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"
_known: dict[tuple[str, ...], re.Pattern[str]] = {}


def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all, each up to a module boundary (transformers/quantizers/quantizers_utils.py, should_convert_module)."""
    if patterns not in _known:
        _known[patterns] = re.compile("|".join(f"(?:{pattern}){_BOUNDARY}" for pattern in patterns))
    return _known[patterns]
