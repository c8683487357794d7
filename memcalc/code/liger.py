"""Which of Liger's kernels are in the place of a model's own modules."""

from __future__ import annotations

from memcalc.dataclass import dataclass


@dataclass(frozen=True)
class Liger:
    """Kernels by what they take the place of.

    Attributes:
        rope: the function that turns queries and keys.
        rms_norm: RMSNorms that have a weight.
        in_place: such a norm writes its input's gradient over its output's.
        own: names of RMSNorms that stay as they are.
        layer_norm: LayerNorms.
        own_layer_norms: names of those that stay as they are.
        mlp: the gate of feed-forward networks.
        experts: the experts of a mixture, all in one function.
        relu_squared: that activation.
        cross_entropy: the loss of whole logits.
        fused_loss: the loss that makes logits in pieces (the run's `loss` says whether it runs).
        chunk: times the bytes of hidden states, what logits of a piece have.
    """

    rope: bool = False
    rms_norm: bool = False
    in_place: bool = True
    own: tuple[str, ...] = ()
    layer_norm: bool = False
    own_layer_norms: tuple[str, ...] = ()
    mlp: bool = False
    experts: bool = False
    relu_squared: bool = False
    cross_entropy: bool = False
    fused_loss: bool = False
    chunk: int = 1


NO_KERNELS = Liger()

__all__ = ["NO_KERNELS", "Liger"]
