"""Log-probabilities without logits: tiles of tokens and vocabulary, made again in backward (TRL 1.16, kernels/chunked_logprob.py, on a GPU).

Statistics of tokens are folded tile by tile by a kernel; backward turns each tile into its gradient in place and sums both products in fp32. A CPU,
which has no such kernel, makes some copies of a tile in fp32 besides.
"""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.code.transformers.loss import weight_of
from memcalc.components import Head
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.span import minimum
from memcalc.tape.tensor import Tensor

TOKENS, WORDS = 4096, 32768
"""The sides of a tile (``TOKEN_CHUNK_SIZE``, trainer/utils.py, ``_CHUNKED_LOGPROB_CHUNK_SIZE``)."""
STATISTICS = 7
"""Numbers in fp32 that are folded for each token."""


def tiles(ctx: Context, m: Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → log-probabilities (tokens,) of all tokens but the first, or of the answer's."""
    tape, asked = ctx.tape, ctx.settings.objective
    assert asked is not None
    length = ctx.seq.size - 1 if asked.answer is None else asked.answer
    num = ctx.batch.size * length
    tokens, hidden = Axis("batch * tokens", num), x.shape[-1]
    kept = F.index(F.narrow(x, (ctx.batch, Axis("tokens", length), hidden)), (tokens, hidden), "hidden states of tokens")
    weight, targets = weight_of(ctx, m), tape.new((tokens,), "int64", "tokens")
    compute = tape.autocast or kept.dtype
    tile = (Axis("tokens of a tile", minimum(num, TOKENS)), Axis("words of a tile", WORDS))
    folded = tape.new((Axis("statistics", STATISTICS), tokens), "float32", "statistics")
    buffer = tape.new(tile, compute, "logits of a tile")
    copy = None if weight.dtype == compute else tape.new((tile[1], hidden), compute, "weight of a tile")
    del copy, buffer
    sums, out = tape.new((tokens,), "float32", "log-sum-exp"), tape.new((tokens,), "float32", "log-probabilities")
    del folded
    kinds = ((kept.shape, kept.dtype), (weight.shape, weight.dtype))

    def backward(wants: tuple[bool, ...], g: Tensor, *saved: Tensor) -> tuple[Tensor | None, ...]:
        wide = [tape.new(shape, "float32", "gradient in fp32") if want else None for want, (shape, _) in zip(wants, kinds, strict=True)]
        buffer = tape.new(tile, compute, "gradient of a tile")
        copy = None if kinds[1][1] == compute else tape.new((tile[1], hidden), compute, "weight of a tile")
        del copy, buffer
        return tuple(F.cast(one, dtype, "gradient") if one is not None else None for one, (_, dtype) in zip(wide, kinds, strict=True))

    tape.record(out, (kept, weight), (kept, targets, sums), backward)
    return out
