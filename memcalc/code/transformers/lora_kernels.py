"""Adapters and their frozen layers in one function: axolotl's kernels (axolotl 0.19, kernels/lora.py), made after Unsloth's.

Forward keeps the input and both factors in its dtype, a network also what comes out of its gate and its up projection; backward writes gradients over
what was kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.code.context import Context
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.quantized import brought_back, dequantised_maxima
from memcalc.components import Attention, GatedMLP, Linear
from memcalc.components.lora import LoraLinear
from memcalc.components.quantized import QuantizedLinear
from memcalc.specs.model import Component
from memcalc.tape import functional as F
from memcalc.tape.functional.pointwise import fit_to
from memcalc.tape.tape import Backward
from memcalc.tape.tensor import Tensor

Pair = tuple[Tensor, Tensor]
"""Both factors of an adapter: (r, in) and (out, r)."""


def are_fused(ctx: Context, kernel: str, *layers: Component | None) -> bool:
    """Whether a kernel is in the place of these layers: all have adapters without magnitudes, on frozen layers that are whole or in 4 bits."""
    return kernel in ctx.settings.lora_kernels and not ctx.has_tp and all(isinstance(m, LoraLinear) and not m.dora and _is_known(m.base_layer) for m in layers)


def _is_known(base: Linear) -> bool:
    return not isinstance(base, QuantizedLinear) or base.kernel == "4-bit"


def _adapted(*layers: Component | None) -> list[LoraLinear]:
    return [m for m in layers if isinstance(m, LoraLinear)]


# ---------------------------------------------------------------------- the three functions
def network(ctx: Context, m: GatedMLP, x: Tensor) -> Tensor:
    """``down(act(gate(x)) * up(x))`` (``LoRA_MLP``); activations are made again in the gradient's place."""
    gate, up, down = _adapted(m.gate, m.up, m.down)
    fed = dropout(ctx, x, gate.dropout)
    with ctx.tape.no_grad():
        opened, raised = _product(ctx, gate, x, fed), _product(ctx, up, x, fed)
        hidden = F.like(opened, "gate * up")
        out = _product(ctx, down, hidden, hidden)
        factors = [_factors(ctx, layer) for layer in (gate, up, down)]
        kept = [F.cast(f, x.dtype, "factor") for pair in factors for f in pair]
        del hidden
    apart = fed is not x

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        x, fed, opened, raised, *kept = saved
        with ctx.tape.no_grad():
            pairs = [(kept[i], kept[i + 1]) for i in (0, 2, 4)]
            hidden = _product_back(ctx, down, g, pairs[2])
            narrow, made = [], []
            for pair, given, source in ((pairs[2], g, hidden), (pairs[1], raised, fed), (pairs[0], opened, fed)):
                narrow.append(_narrow(given, pair[1]))
                made.append(_of_factors(pair, source))
            _whole(ctx, up, raised)
            whole = _whole(ctx, gate, opened)
            part = F.like(x, "gradient through the gate")
            del whole, part
            of_fed = F.like(fed, "gradient of input after dropout") if apart else None
        made.reverse()
        return _wanted(wants, (_same(x), *([of_fed] if apart else []), *(f for pair in made for f in pair)))

    _record(ctx, [out], x, fed, factors, (x, fed, opened, raised, *kept), backward)
    return out


def projections(ctx: Context, m: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (``LoRA_QKV``)."""
    layers = _adapted(m.q, m.k, m.v)
    fed = dropout(ctx, x, layers[0].dropout)
    with ctx.tape.no_grad():
        query, key, value = (_product(ctx, layer, x, fed) for layer in layers)
        factors = [_factors(ctx, layer) for layer in layers]
        kept = [F.cast(f, x.dtype, "factor") for pair in factors for f in pair]
    apart = fed is not x

    def backward(wants: tuple[bool, ...], *given: Tensor) -> tuple[Tensor | None, ...]:
        grads, (x, fed, *kept) = given[:3], given[3:]
        with ctx.tape.no_grad():
            narrow, made = [], []
            for i, g in enumerate(grads):
                pair = (kept[2 * i], kept[2 * i + 1])
                narrow.append(_narrow(g, pair[1]))
                made.append(_of_factors(pair, fed))
            for layer, g in zip(layers, grads, strict=True):
                _whole(ctx, layer, g)
            of_fed = F.like(fed, "gradient of input after dropout") if apart else None
        return _wanted(wants, (_same(x), *([of_fed] if apart else []), *(f for pair in made for f in pair)))

    _record(ctx, [query, key, value], x, fed, factors, (x, fed, *kept), backward)
    return query, key, value


def output(ctx: Context, m: Linear | LoraLinear, x: Tensor) -> Tensor:
    """The output projection of attention (``LoRA_O``)."""
    (layer,) = _adapted(m)
    fed = dropout(ctx, x, layer.dropout)
    with ctx.tape.no_grad():
        out = _product(ctx, layer, x, fed)
        factors = [_factors(ctx, layer)]
        kept = [F.cast(f, x.dtype, "factor") for f in factors[0]]
    apart = fed is not x

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        a, b, x, fed = saved
        with ctx.tape.no_grad():
            narrow = _narrow(g, b)
            made = _of_factors((a, b), fed)
            whole = _whole(ctx, layer, g)
            of_x = F.linear(g, whole, None, x.shape[-1], "gradient of input")
            del whole
            of_fed = F.scale(F.like(of_x, "gradient of input after dropout")) if apart else None
            del narrow
        return _wanted(wants, (of_x, *([of_fed] if apart else []), *made))

    _record(ctx, [out], x, fed, factors, (*kept, x, fed), backward)
    return out


# ---------------------------------------------------------------------- what they are made of
def _record(ctx: Context, outputs: list[Tensor], x: Tensor, fed: Tensor, factors: Sequence[Pair], saves: Sequence[Tensor], backward: Backward) -> None:  # noqa: PLR0917
    inputs = (x, *([fed] if fed is not x else []), *(f for pair in factors for f in pair))
    ctx.tape.record(outputs, inputs, saves, backward, fit_to([(t.shape, t.dtype) for t in inputs]))


def _wanted(wants: tuple[bool, ...], made: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    return tuple(t if want else None for want, t in zip(wants, made, strict=True))


def _factors(ctx: Context, m: LoraLinear) -> Pair:
    found = []
    for factor in (m.lora_A, m.lora_B):
        with ctx.inside(m.module_name), ctx.inside(factor.module_name):
            found.append(ctx.parameter(next(factor.own_weights())))
    return found[0], found[1]


def _whole(ctx: Context, m: LoraLinear, x: Tensor) -> Tensor:
    """The frozen weight as a product with x takes it: itself, or brought back from 4 bits for a moment."""
    base = m.base_layer
    if isinstance(base, QuantizedLinear):
        maxima = dequantised_maxima(base, x)
        whole = brought_back(base, x)
        del maxima
        return whole
    with ctx.inside(m.module_name), ctx.inside("base_layer"):
        return ctx.parameter(next(base.own_weights()))


def _product(ctx: Context, m: LoraLinear, x: Tensor, fed: Tensor) -> Tensor:
    """``x W + s · fed A B``, the second part added in place (``matmul_lora``)."""
    whole = _whole(ctx, m, x)
    with ctx.inside(m.module_name):
        out = F.linear(x, whole, None, m.outputs, "output")
    del whole
    a, b = (F.cast(f, x.dtype, "factor") for f in _factors(ctx, m))
    narrow = F.linear(fed, a, None, m.lora_A.outputs, "input times lora_A")
    del narrow, a, b
    return out


def _product_back(ctx: Context, m: LoraLinear, g: Tensor, pair: Pair) -> Tensor:
    """The gradient of the input of such a product."""
    whole = _whole(ctx, m, g)
    out = F.linear(g, whole, None, m.inputs, "gradient of input")
    del whole
    _narrow(g, pair[1])
    return out


def _narrow(g: Tensor, b: Tensor) -> Tensor:
    """The output's gradient times lora_B."""
    return F.linear(g, b, None, b.shape[1], "gradient times lora_B")


def _of_factors(pair: Pair, source: Tensor) -> Pair:
    """Gradients of both factors, the second by way of the transposed input times lora_A."""
    made = F.like(pair[0], "gradient of lora_A"), F.like(pair[1], "gradient of lora_B")
    source.tape.new((pair[0].shape[0], *source.shape[:-1]), pair[0].dtype, "lora_A times input")
    return made


def _same(x: Tensor) -> Tensor:
    return Tensor(x.tape, x.shape, x.dtype, x.storage)
