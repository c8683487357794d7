"""A padded batch before flash attention: its tokens are picked out, and put back in their places after it (modeling_flash_attention_utils.py)."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import routing
from memcalc.tape.tensor import Tensor


def attend_unpadded(ctx: Context, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(batch, heads, seq, head_dim) in, the same out (``_upad_input``, ``_pad_input``), counted as if nothing were padding.

    Every layer finds the places of the tokens anew. Copies of queries, keys and values are saved in the place of those, and the output twice: as the
    kernel made it, and with zeros where the batch is padded.
    """
    tokens = Axis("tokens", ctx.batch.size * ctx.seq.size)
    places = ctx.tape.new((tokens,), "int64", "places of tokens")
    one, rows = Axis("batch", 1), []
    for x, name in ((key, "key"), (value, "value"), (query, "query")):
        flat = F.view(x, (tokens, x.shape[1], x.shape[3]))
        rows.append(routing.index_rows(flat, places, tokens, f"{name} of tokens"))
    shapes = [(one, x.shape[1], tokens, x.shape[2]) for x in rows]
    rows = [F.view(x, shape) for x, shape in zip(rows, shapes, strict=True)]
    del flat, query, key, value
    out = F.scaled_dot_product_attention(rows[2], rows[0], rows[1])
    del rows
    out = routing.place_rows(out, places, "attention output with padding")
    return F.view(out, (ctx.batch, out.shape[1], ctx.seq, out.shape[3]))
