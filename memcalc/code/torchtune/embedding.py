"""The token table; angles are a buffer of the layers."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.components import Embedding
from memcalc.tape import functional as F
from memcalc.tape.tensor import Tensor


@runs(Embedding)
def tok_embeddings(ctx: Context, m: Embedding, ids: Tensor) -> Tensor:
    """ids (batch, seq) → (batch, seq, hidden), scaled where the model does (GemmaNormEmbeddings.forward). The model's forward rebinds it."""
    ctx.holds_output = False
    x = F.embedding(ids, ctx.parameter(next(m.own_weights()), has_gradient=m.tied), m.width, "tok_embeddings")
    return F.scale(x, "scaled tok_embeddings") if m.scaled else x
