"""The token table; angles are buffers of the model."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import Embedding
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(Embedding)
def wte(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """ids (batch, seq) → (batch, seq, hidden), scaled where the model does (GPT.forward, which rebinds it)."""
    ctx.holds_output = False
    x = F.embedding(ids, ctx.parameter(next(m.own_weights()), has_gradient=m.tied), m.width, "wte")
    return F.scale(x, "scaled wte") if m.scaled else x
