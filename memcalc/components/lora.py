"""Low-rank adapters (Hu et al. 2021), as PEFT puts them around a linear layer; and layers of which PEFT trains a copy."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.components.embedding import COPY, Original
from memcalc.components.linear import Linear
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Cut, Weight


@dataclass(frozen=True)
class LoraLinear(Component):
    """A frozen linear layer with ``B(A(x)) · α/r`` beside it.

    Attributes:
        base_layer: the frozen layer; its name is that of the pair.
        lora_A: inputs → r.
        lora_B: r → outputs.
        dropout: on the adapter's input.
        dora: rows of the merged weight have a trained magnitude (DoRA, Liu et al. 2024).
    """

    base_layer: Linear
    lora_A: Linear  # noqa: N815 (as PEFT calls it)
    lora_B: Linear  # noqa: N815
    dropout: float = 0.0
    dora: bool = False

    @property
    def module_name(self) -> str:
        """That of the layer it wraps."""
        return self.base_layer.name

    @property
    def name(self) -> str:
        """That of the layer it wraps, in whose place programs ask for it; so for its axes, bias, cut and dtype."""
        return self.base_layer.name

    @property
    def inputs(self) -> Axis:
        """The wrapped layer's."""
        return self.base_layer.inputs

    @property
    def outputs(self) -> Axis:
        """The wrapped layer's."""
        return self.base_layer.outputs

    @property
    def bias(self) -> bool:
        """The wrapped layer's."""
        return self.base_layer.bias

    @property
    def split(self) -> Cut | None:
        """The wrapped layer's."""
        return self.base_layer.split

    @property
    def dtype(self) -> str | None:
        """The wrapped layer's."""
        return self.base_layer.dtype

    def own_weights(self) -> Iterator[Weight]:
        """``lora_magnitude_vector`` (out,), of DoRA."""
        if self.dora:
            cuts = self.lora_B.split
            yield Weight("lora_magnitude_vector/default/weight", (self.base_layer.outputs,), () if cuts is None else ((cuts, 0),), self.lora_B.dtype)


@dataclass(frozen=True)
class SavedLinear(Linear):
    """A linear layer of which a copy is trained, beside the frozen one.

    Attributes:
        original: the frozen weight; none where it is another layer's, too.
    """

    original: Original | None = None

    def own_weights(self) -> Iterator[Weight]:
        """Those of any linear layer, the weight under its copy's name."""
        for weight in super().own_weights():
            yield weight._replace(name=COPY) if weight.name == "weight" else weight
