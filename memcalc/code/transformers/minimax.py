"""MiniMax-Text-01: lightning attention, block by block, and its layers."""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context, runs
from memcalc.components.minimax import LightningAttention, MiniMaxLayer
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.shape import narrow
from memcalc.tape.span import maximum
from memcalc.tape.tensor import Shape, Tensor
from memcalc.units import ceil_div


@runs(MiniMaxLayer)
def minimax_layer(ctx: Context, m: MiniMaxLayer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same; what attention returns beside its output is held to the end (MiniMaxDecoderLayer.forward)."""
    assert m.input_layernorm is not None
    assert m.post_attention_layernorm is not None
    assert m.mlp is not None
    ctx.shared.read.update(("cos", "sin"))  # every layer is given them, whether or not its attention reads them
    held = ctx.probabilities = []
    h = ctx.run(m.input_layernorm, x, "input_layernorm")
    residual = h
    h = ctx.run(m.self_attn, h, "self_attn")
    ctx.probabilities = None
    h = F.scale(residual, "residual scaled") + F.scale(h, "branch scaled")
    h = ctx.run(m.post_attention_layernorm, h, "post_attention_layernorm")
    residual = h
    h = ctx.run(m.mlp, h, "mlp")
    h = F.scale(residual, "residual scaled") + F.scale(h, "branch scaled")
    held.clear()
    return h


@runs(LightningAttention)
def lightning_attention(ctx: Context, m: LightningAttention, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (MiniMaxLightningAttention.forward)."""
    heads, dim = Axis("heads", m.num_heads // ctx.settings.tp), Axis("head_dim", m.head_dim)
    three = apply_activation(ctx.run(m.qkv_proj, x), m.activation)
    three = F.view(three, (ctx.batch, ctx.seq, heads, Axis("3 * head_dim", 3 * m.head_dim)))
    query, key, value = (F.view(part, (ctx.batch, heads, ctx.seq, dim)) for part in F.split_last(three, (dim, dim, dim)))
    state = ctx.tape.new((ctx.batch, heads, dim, Axis("value_dim", m.head_dim)), x.dtype, "state")
    blocks = Blocks(ctx, m, heads)
    outputs = []
    for i in range(blocks.count):
        block = blocks.step(i, (query, key, value), state)
        state = block[-1]
        outputs.append(block[0])
    out = join(outputs, (ctx.batch, heads, ctx.seq, dim))
    outputs.clear()
    flat = Axis("heads * head_dim", heads.size * m.head_dim)
    out = F.view(F.clone(out, "output in order"), (ctx.batch, ctx.seq, flat))
    out = ctx.run(m.norm, out, "norm")
    out = F.mul(F.keeps_result(ctx.run(m.output_gate, x), "gate"), out, "gated output")
    out = ctx.run(m.out_proj, out)
    del block, three
    return out


class Blocks:
    """The loop over blocks; a sequence that has fewer of them than another (in an array of lengths) has empty ones."""

    def __init__(self, ctx: Context, m: LightningAttention, heads: Axis) -> None:
        self.ctx, self.heads, self.block_size = ctx, heads, m.block_size
        count = ceil_div(ctx.seq.size, m.block_size)
        self.count = count if isinstance(count, int) else int(count.max())

    def sizes(self, i: int) -> tuple[Any, Any]:
        """Tokens of the i-th block, and 1 where another follows."""
        size, seq = self.block_size, self.ctx.seq.size
        left, after = maximum(seq - i * size, 0), maximum(seq - (i + 1) * size, 0)
        return left + size - maximum(left, size), after + 1 - maximum(after, 1)

    def order(self, x: Tensor, name: str) -> Tensor:
        """x as a batched product takes it: copied where there are several sequences."""
        is_single = self.ctx.has_one_sequence
        return x if is_single else F.clone(x, name)

    def step(self, i: int, qkv: tuple[Tensor, Tensor, Tensor], state: Tensor) -> tuple[Tensor, ...]:
        """The output of one block and what its variables hold until the next, the new state last."""
        length, follows = self.sizes(i)
        tape, (batch, heads, dim, _) = self.ctx.tape, state.shape
        tokens = Axis("block_size", length)
        part: Shape = (batch, heads, tokens, dim)
        query, key, value = (narrow(x, part) for x in qkv)
        decay = Tensor(tape, (heads, tokens, Axis("1", 1)), state.dtype, None)
        square: Shape = (batch, heads, tokens, Axis("block keys", length))
        inner = F.matmul(self.order(query, "query in order"), self.order(key, "key in order"), square, "scores")
        within = Tensor(tape, square[1:], state.dtype, None)
        inner_out = F.matmul(F.mul(inner, within, "decayed scores"), self.order(value, "value in order"), part, "output within")
        outer_out = F.matmul(self.order(F.mul(query, decay, "decayed query"), "query in order"), state, part, "output of state")
        out = F.add(outer_out, inner_out, "output of block")
        is_recorded = tape.grad_enabled
        with tape.no_grad():
            last = self.finish((key, value), state, length * (1 - follows), is_recorded=is_recorded)
        new, state = self.renew(key, value, state, length * follows)
        return out, inner, inner_out, outer_out, last, new, state

    def finish(self, key_value: tuple[Tensor, Tensor], state: Tensor, length: Any, *, is_recorded: bool) -> Tensor:
        """The state after the last block, which nothing reads in training: what it saves lives as long as the layer holds it."""
        key, value = key_value
        decayed, ordered = self.decay(key, length), self.order(self.cut(value, length), "value in order")
        new, last = self.advance(decayed, ordered, state)
        if self.ctx.probabilities is not None:
            self.ctx.probabilities.extend((decayed, ordered, last) if is_recorded else (last,))
        self.ctx.keep(last, "state")
        return new

    def renew(self, key: Tensor, value: Tensor, state: Tensor, length: Any) -> tuple[Tensor, Tensor]:
        """The state for the block that follows, and what this block added to it."""
        return self.advance(self.decay(key, length), self.order(self.cut(value, length), "value in order"), state)

    def advance(self, decayed: Tensor, value: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Keys times values, and the state that decays by a factor for each head and takes them up; nothing where there are no tokens."""
        batch, heads, dim, value_dim = state.shape
        any_tokens = decayed.shape[2].size + 1 - maximum(decayed.shape[2].size, 1)
        shape: Shape = (batch, Axis("heads", self.heads.size * any_tokens), dim, value_dim)
        new = F.matmul(decayed, value, shape, "new state")
        factor = Tensor(state.tape, (heads,), state.dtype, None)
        return new, F.add(new, F.mul(self.sized(state, shape), factor, "decayed state"), "state")

    def sized(self, state: Tensor, shape: Shape) -> Tensor:
        """The state, as a view of nothing where no block follows."""
        return F.view(state, shape)

    def decay(self, key: Tensor, length: Any) -> Tensor:
        """Keys that decay towards the end of the block, in order."""
        part = self.cut(key, length)
        return self.order(F.mul(part, Tensor(part.tape, part.shape[1:3], part.dtype, None), "decayed key"), "key in order")

    def cut(self, x: Tensor, length: Any) -> Tensor:
        """The block, or nothing of it."""
        return F.view(x, (*x.shape[:2], Axis("block_size", length), x.shape[3]))


def join(parts: list[Tensor], shape: Shape) -> Tensor:
    """All blocks after each other; backward hands out views."""
    out = parts[0].tape.new(shape, parts[0].dtype, "output")
    shapes = [p.shape for p in parts]
    out.tape.record(out, parts, (), lambda wants, g: tuple(Tensor(g.tape, s, g.dtype, g.storage) if w else None for w, s in zip(wants, shapes, strict=True)))
    return out
