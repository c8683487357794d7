"""What a model's checkpoint takes on disk, by what its config.json says, and by its files where they are beside it."""

from __future__ import annotations

from typing import NamedTuple

from memcalc.errors import InputError
from memcalc.models.checkpoint import Checkpoint, read_checkpoint
from memcalc.models.stored import Stored, stored
from memcalc.specs.model import ModelSpec
from memcalc.units import DTYPE_BYTES

DEFAULT_DTYPE = "bfloat16"
TRAINING = {
    "adapters": "fine-tuning trains adapters beside the weights as they are stored",
    "dequantised": "fine-tuning dequantises the weights first",
}


class Storage(NamedTuple):
    """How a model is stored.

    Attributes:
        name: of the quantization; empty without one.
        dtype: of what is not quantised.
        stored: by the config.
        training: what becomes of quantised weights in fine-tuning.
        notes: where files are beside the config, what they hold and how that differs; what was assumed.
    """

    name: str
    dtype: str
    stored: Stored
    training: str = ""
    notes: tuple[str, ...] = ()


def storage(spec: ModelSpec, folder: str | None) -> Storage:
    """How a model is stored.

    Args:
        spec: the model.
        folder: that of its config.json, if it has one.
    """
    known = spec.dtype if spec.dtype in DTYPE_BYTES else None
    dtype, quantization = known or DEFAULT_DTYPE, spec.quantization
    found = stored(spec, quantization, dtype)
    notes = [] if known else [f"the config.json names no dtype: {dtype}"]
    if folder is not None:
        notes += _beside(folder, spec, found)
    if quantization is None:
        return Storage("", dtype, found, notes=tuple(notes))
    return Storage(quantization.name, dtype, found, TRAINING[quantization.training], tuple(notes))


def _beside(folder: str, spec: ModelSpec, found: Stored) -> list[str]:
    try:
        files = read_checkpoint(folder)
    except InputError as error:
        return [str(error)]
    return [] if files is None else [_compared(files, spec, found)]


def _compared(files: Checkpoint, spec: ModelSpec, found: Stored) -> str:
    """What the files hold, held against what the config says."""
    text = f"{files.source}: {files.bytes:,} bytes"
    if files.bytes == found.bytes:
        return f"{text}, as computed"
    more = files.bytes - found.bytes
    text += f", {abs(more):,} {'more' if more > 0 else 'fewer'} than computed ({more / found.bytes:+.2%})"
    if spec.quantization is None and files.elements is not None and files.elements != spec.num_params:
        text += f"; {files.elements:,} elements for {spec.num_params:,} parameters"
    return text
