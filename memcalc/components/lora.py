"""Low-rank adapters (Hu et al. 2021), as PEFT puts them around a linear layer."""

from __future__ import annotations

from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Component


@dataclass(frozen=True)
class LoraLinear(Component):
    """A frozen linear layer with ``B(A(x)) · α/r`` beside it.

    Attributes:
        base_layer: the frozen layer; its name is that of the pair.
        lora_A: inputs → r.
        lora_B: r → outputs.
        dropout: on the adapter's input.
    """

    base_layer: Linear
    lora_A: Linear
    lora_B: Linear
    dropout: float = 0.0

    @property
    def module_name(self) -> str:
        """That of the layer it wraps."""
        return self.base_layer.name
