"""Virtual tokens before a batch: embeddings that are joined to the tokens', or keys and values of every layer (PEFT's prompt learning)."""

from __future__ import annotations

from memcalc.code.context import Context
from memcalc.components.prompt import PromptEncoder
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.tape import Leaf
from memcalc.tape.tensor import Shape, Tensor

LINK = "link to the prefix"
"""A shared tensor of no bytes, by which gradients of all layers come to the prompt encoder."""
PREFIX = "activations/keys and values of virtual tokens"
PROMPTS, LABELS, NO_LABELS = "virtual tokens", "labels with virtual tokens", "labels of virtual tokens"


def encode(ctx: Context, m: PromptEncoder, sequences: Axis) -> Tensor:
    """Rows of the table for so many sequences, through the network where there is one; the tokens' numbers are a buffer."""
    numbers = Tensor(ctx.tape, (sequences, m.tokens), "int64", None)
    x = F.embedding(numbers, ctx.parameter(next(m.own_weights())), m.width, "rows")
    for i, layer in enumerate(m.layers):
        x = ctx.run(layer, x if i == 0 else F.keeps_result(x, m.activation))
    return x


def prepend(ctx: Context, m: PromptEncoder, rows: Tensor) -> Tensor:
    """rows (batch, tokens of the batch, hidden) with the virtual tokens' before them (peft/peft_model.py, PeftModelForCausalLM.forward, get_prompt).

    They are made for one sequence and repeated. The call has variables for them and for the longer labels until the model has returned.
    """
    if ctx.settings.leaf_inputs and ctx.settings.records:
        rows = leaf_of(rows)
    virtual = (ctx.batch, m.tokens)
    ctx.shared[NO_LABELS] = ctx.tape.new(virtual, "int64", NO_LABELS)
    ctx.shared[LABELS] = ctx.tape.new((ctx.batch, ctx.seq), "int64", LABELS)
    with ctx.inside(m.module_name):
        x = encode(ctx, m, Axis("one", 1))
        x = F.repeat(x, (*virtual, x.shape[-1]), "repeated")
        x = F.cast(x, rows.dtype, "in the model's dtype")
    ctx.shared[PROMPTS] = Tensor(ctx.tape, x.shape, x.dtype, x.storage)
    return F.join((x, rows), (ctx.batch, ctx.seq, rows.shape[-1]), "inputs_embeds")


def leaf_of(x: Tensor) -> Tensor:
    """x, which enable_input_require_grads makes a leaf: it stays to the end of the step, and so does its gradient, copied out of that of the whole."""
    tape, kind = x.tape, (x.shape, x.dtype, "activations/inputs_embeds")
    tape.outlives(*kind)
    leaf, y = Tensor(tape, x.shape, x.dtype, None), Tensor(tape, x.shape, x.dtype, None)
    leaf.requires_grad, leaf.node = True, Leaf("gradient of leaf", keeps=False)

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[None]:
        tape.outlives(*kind)
        return (None,)

    tape.record(y, (leaf,), (), backward)
    return y


def make_prefix(ctx: Context, m: PromptEncoder) -> None:
    """Keys and values of every layer, copied out of one tensor into the cache (get_prompt; transformers/cache_utils.py, DynamicLayer.update).

    Each is born here and dies where its layer joins it to its own; their gradients wait for one another, and make up one tensor in several steps.
    """
    tape, shape = ctx.tape, key_shape(ctx, m)
    with ctx.inside(m.module_name):
        x = F.cast(encode(ctx, m, ctx.batch), ctx.settings.dtype, "in the model's dtype")
        link = tape.new((Axis("nothing", 0),), x.dtype, LINK)
    for _ in range(m.num_tensors):
        tape.outlives(shape, x.dtype, PREFIX)
    kind = (x.shape, x.dtype)

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor]:
        joined = tape.new(*kind, "gradients of keys and values, joined")
        ordered = tape.new(*kind, "gradients of keys and values, in order")
        del joined
        return (ordered,)

    tape.record(link, (x,), (), backward)
    ctx.shared[LINK] = link


def key_shape(ctx: Context, m: PromptEncoder) -> Shape:
    """(batch, heads, virtual tokens, head_dim)."""
    return (ctx.batch, Axis("num_kv_heads", m.heads), m.tokens, Axis("head_dim", m.head_dim))


def with_prefix(ctx: Context, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values (batch, heads, seq, head_dim) of a layer behind those of the virtual tokens, in the cache until the model's output is dropped."""
    key, value = lengthen(ctx, key, "key with virtual tokens"), lengthen(ctx, value, "value with virtual tokens")
    ctx.set_aside((key, value))
    return key, value


def lengthen(ctx: Context, x: Tensor, name: str) -> Tensor:
    """One of the two. The part of its gradient that is the prefix's waits as a view of the whole until all layers are through."""
    tokens = Axis("num_virtual_tokens", ctx.settings.prefix)
    prefix = ctx.tape.taken((*x.shape[:2], tokens, x.shape[3]), x.dtype, PREFIX)
    link = ctx.shared[LINK]
    if link.requires_grad:
        prefix.requires_grad, prefix.node = True, Leaf("activations/gradient of keys and values", keeps=True)
        ctx.waiting.append(prefix.node)
    out = ctx.tape.new((*x.shape[:2], Axis("keys", tokens.size + x.shape[2].size), x.shape[3]), x.dtype, name)
    shapes = (prefix.shape, x.shape)

    def backward(wants: tuple[bool, ...], g: Tensor) -> tuple[Tensor | None, ...]:
        parts = (Tensor(g.tape, shape, g.dtype, g.storage) if want else None for want, shape in zip(wants, shapes, strict=False))
        return (*parts, g.tape.new((Axis("nothing", 0),), g.dtype, LINK) if wants[2] else None)

    ctx.tape.record(out, (prefix, x, link), (), backward)
    return out
