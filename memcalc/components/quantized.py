"""A linear layer whose weight is stored quantised, and takes no gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component, Weight
from memcalc.specs.quantization import Scheme

Kernel = Literal["4-bit", "8-bit", "other"]


@dataclass(frozen=True)
class QuantizedLinear(Linear):
    """``y = x Wᵀ + b`` with W brought back to the compute dtype where it is needed.

    Attributes:
        scheme: how its weight is stored.
        compute: the dtype of its product.
        held: the dtype that it was packed from, and is brought back to before it is cast; by default that of the product.
        keeps_input: its input is saved for backward, though nothing asks for it.
        kernel: bitsandbytes' 4-bit or 8-bit product, or that of other packages.
    """

    scheme: Scheme = Scheme("nf4", 4)
    compute: str = "bfloat16"
    kernel: Kernel = "4-bit"
    held: str | None = None
    keeps_input: bool = False

    def own_weights(self) -> Iterator[Weight]:
        """Those of any linear layer, without gradients; the elements of the weight are counted as if it were not packed."""
        yield from (weight._replace(frozen=True) for weight in super().own_weights())

    @property
    def packed_bytes(self) -> int:
        """What its weight takes, with its scales."""
        return int(self.scheme.weight_bytes(self.outputs.size, self.inputs.size))


def quantised(module: Component, prefix: str = "") -> Iterator[tuple[str, QuantizedLinear]]:
    """Slash path and component of every quantised layer below."""
    for name, child in module.children():
        if isinstance(child, QuantizedLinear):
            yield f"{prefix}{name}", child
        else:
            yield from quantised(child, f"{prefix}{name}/")


def packed(module: Component, prefix: str = "") -> dict[str, int]:
    """Path and bytes of every quantised weight below, experts stacked in one tensor among them.

    Those are quantised one by one, where the layers around them are (transformers 4 holds each as a linear layer; 5, which stacks them, has
    bitsandbytes leave them as they are).
    """
    layers = dict(quantised(module, prefix))
    found = {f"{path}/weight": layer.packed_bytes for path, layer in layers.items()}
    if layers:
        scheme = next(iter(layers.values())).scheme
        for path, weight in module.weights(prefix):
            if weight.is_expert and len(weight.shape) == 3:
                count, rows, columns = (axis.size for axis in weight.shape)
                found[path] = int(count * scheme.weight_bytes(rows, columns))
    return found


def packed_values(module: Component) -> int:
    """Bytes of the values of every 4-bit weight below that an engine may spread.

    bitsandbytes files values as a parameter, scales and tables not. Of GPTQ, fms-acceleration makes parameters of values and zero points
    (framework_plugin_autogptq.py); scales stay.
    """
    layers = [layer for _, layer in quantised(module) if layer.scheme.kind in ("nf4", "gptq")]
    if not layers:
        return 0
    scheme, sizes = layers[0].scheme, [layer.outputs.size * layer.inputs.size for layer in layers]
    sizes += [weight.num_params for _, weight in module.weights() if weight.is_expert and len(weight.shape) == 3]
    zeros = [size // scheme.group if scheme.kind == "gptq" else 0 for size in sizes]
    return sum((int(size + zero) * scheme.bits + 7) // 8 for size, zero in zip(sizes, zeros, strict=True))
