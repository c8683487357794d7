"""How many bytes a model's checkpoint holds, module by module, where its config.json says that weights are quantised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from memcalc.components.linear import Linear
from memcalc.specs.model import Block, Component, ModelSpec, Weight
from memcalc.specs.quantization import Module, Quantization, Scheme
from memcalc.units import DTYPE_BYTES

PREFIXES = ("", "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
"""What may stand before a block's path in the names of the model's modules."""


class Stored(NamedTuple):
    """A checkpoint's weights.

    Attributes:
        quantised_params, quantised_bytes: of the weights that are quantised, with their scales.
        plain_params, plain_bytes: of all others.
    """

    quantised_params: int = 0
    quantised_bytes: int = 0
    plain_params: int = 0
    plain_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Of all weights."""
        return self.quantised_bytes + self.plain_bytes


class _Matrix(NamedTuple):
    """A weight that a scheme may apply to.

    Attributes:
        module: dotted path of its module inside the block.
        rows, columns: out_features and in_features.
        number: how many of this shape the weight stacks.
        parts: matrices that stand side by side in each, along the rows, and are stored one by one.
        is_expert: it belongs to routed experts.
        is_stacked: all experts' stand in one tensor.
    """

    module: str
    rows: int
    columns: int
    number: int = 1
    parts: int = 1
    is_expert: bool = False
    is_stacked: bool = False


def stored(spec: ModelSpec, quantization: Quantization | None, dtype: str) -> Stored:
    """What the weights of a model take in its checkpoint.

    Args:
        spec: the model.
        quantization: how it is stored; None: as it is.
        dtype: of what is not quantised, and names none of its own.
    """
    found = Stored()
    numbers: dict[str, int] = {}
    for block in spec.blocks:
        first = numbers.get(block.path, 0)
        numbers[block.path] = first + block.repeat
        plain, matrices = _sorted_weights(block.module)
        size = sum(w.num_params * DTYPE_BYTES[w.dtype or dtype] for w in plain)
        found = _add(found, plain=(sum(w.num_params for w in plain) * block.repeat, size * block.repeat))
        for place in range(first, first + block.repeat):
            for matrix, weight in matrices:
                scheme = quantization.scheme_for(_module(block, place, matrix)) if quantization else None
                found = _with(found, scheme, matrix, DTYPE_BYTES[weight.dtype or dtype])
    return found


def weight_bytes(block: Block, number: int, quantization: Quantization | None, dtype: str) -> Iterator[tuple[str, Weight, int]]:
    """Module (dotted, inside the block; empty where that does not matter), weight, and what it is stored in, for one of a block's repetitions.

    Args:
        block: of the model.
        number: of the layer, if the block is one.
        quantization, dtype: as for `stored`.
    """
    plain, matrices = _sorted_weights(block.module)
    for weight in plain:
        yield "", weight, weight.num_params * DTYPE_BYTES[weight.dtype or dtype]
    for matrix, weight in matrices:
        scheme = quantization.scheme_for(_module(block, number, matrix)) if quantization else None
        yield matrix.module, weight, _with(Stored(), scheme, matrix, DTYPE_BYTES[weight.dtype or dtype]).bytes


def module_names(block: Block, number: int, module: str) -> tuple[str, ...]:
    """The names that a module may have in its model.

    Args:
        block: where it stands.
        number: of the layer, if it stands in one.
        module: its dotted path inside the block.
    """
    numbered = block.role in ("layer", "tower")
    parts = [block.path.replace("/", "."), str(number) if numbered else "", module]
    name = ".".join(part for part in parts if part)
    return tuple(f"{prefix}{name}" for prefix in PREFIXES)


# ---------------------------------------------------------------------- inside
def _with(found: Stored, scheme: Scheme | None, matrix: _Matrix, width: int) -> Stored:
    numel = matrix.number * matrix.rows * matrix.columns
    if scheme is None:
        return _add(found, plain=(numel, numel * width))
    each = scheme.weight_bytes(matrix.rows // matrix.parts, matrix.columns)
    return _add(found, quantised=(numel, matrix.number * matrix.parts * int(each)))


def _module(block: Block, number: int, matrix: _Matrix) -> Module:
    place: Literal["layer", "head", "elsewhere"] = "layer" if block.role == "layer" else "head" if block.role == "head" else "elsewhere"
    return Module(module_names(block, number, matrix.module), place, matrix.is_expert, matrix.is_stacked)


def _add(found: Stored, *, quantised: tuple[int, int] = (0, 0), plain: tuple[int, int] = (0, 0)) -> Stored:
    return Stored(*(a + b for a, b in zip(found, (*quantised, *plain), strict=True)))


def _sorted_weights(module: Component) -> tuple[list[Weight], list[tuple[_Matrix, Weight]]]:
    """Weights that stay as they are, and those of linear layers and experts."""
    linears = dict(_linears(module))
    plain, matrices = [], []
    for path, weight in module.weights():
        owner, _, name = path.rpartition("/")
        if name == "weight" and owner in linears:
            one = linears[owner]
            expert = weight.is_expert
            matrices.append((_Matrix(owner.replace("/", "."), int(one.outputs.size), int(one.inputs.size), is_expert=expert), weight))
        elif weight.is_expert and len(weight.shape) == 3:
            matrices.append((_stack(path, weight), weight))
        else:
            plain.append(weight)
    return plain, matrices


def _linears(module: Component, path: str = "") -> Iterator[tuple[str, Linear]]:
    if isinstance(module, Linear):
        yield path, module
    for name, child in module.children():
        yield from _linears(child, f"{path}/{name}" if path else name)


def _stack(path: str, weight: Weight) -> _Matrix:
    """Experts' matrices, one behind the other; gate and up of each are stored as two."""
    kind, axis = next((kind, axis) for kind, axis in weight.cuts if kind != "expert")
    rows = axis if kind == "expert_column" else 3 - axis
    count, sizes = int(weight.shape[0].size), [int(a.size) for a in weight.shape]
    parts = 2 if weight.name.startswith("gate_up") else 1
    return _Matrix(path.replace("/", "."), sizes[rows], sizes[3 - rows], count, parts, is_expert=True, is_stacked=True)
