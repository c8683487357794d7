"""T5's stacks. Attention with a bias that takes a gradient is written out on a CPU, which these programs follow; a GPU has a kernel for it."""

from __future__ import annotations

from memcalc.code.context import Context, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.mask import make_mask
from memcalc.components.bart import BartAttention
from memcalc.components.t5 import T5MLP, T5Attention, T5Embedding, T5FinalNorm, T5Head, T5Layer, T5Norm
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.functional import scan
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.matmul import under_autocast
from memcalc.tape.tape import Leaf
from memcalc.tape.tensor import Shape, Tensor

STATES = "encoder_hidden_states"
MASK = "causal mask"
HALF = ("bfloat16", "float16")


@runs(T5Norm)
def t5_norm(ctx: Context, m: T5Norm, x: Tensor) -> Tensor:
    """Saves x, its fp32 copy, its reciprocal root mean square and both factors of the last product (T5LayerNorm.forward)."""
    weight = ctx.parameter(next(m.own_weights()))
    variance = F.mean(F.pow2(F.cast(x, "float32", "input in fp32")), "variance")
    h = F.mul(x, F.rsqrt(F.add_scalar(variance, "variance + eps"), "inverse root mean square"), "normalised in fp32")
    if weight.dtype in HALF:
        h = F.cast(h, weight.dtype, "normalised")
    return F.mul(h, weight, "output")


@runs(T5FinalNorm)
def final_norm(ctx: Context, m: T5FinalNorm, x: Tensor) -> Tensor:
    """The end of T5Stack.forward."""
    return dropout(ctx, ctx.run(m.norm, x, "final_layer_norm"), m.dropout)


@runs(T5Embedding)
def embed(ctx: Context, m: T5Embedding, x: Tensor) -> Tensor:
    """Token ids, or the encoder's output (batch, seq, hidden) → (batch, seq, hidden) (T5Stack.forward).

    The decoder's ids are the labels, shifted; in inference one of them. It has as many as the encoder.
    """
    table = ctx.parameter_at("shared/weight", m.table, has_gradient=not m.first)
    if m.stack == "encoder":
        return dropout(ctx, F.embedding(x, table, m.width, "inputs_embeds"), m.dropout)
    ctx.shared[STATES] = x
    target = ctx.seq if ctx.settings.training else Axis("1", 1)
    ids = ctx.tape.new((ctx.batch, target), "int64", "decoder_input_ids")
    h = F.embedding(ids, table, m.width, "decoder_inputs_embeds")
    if ctx.settings.attention == "eager" and ctx.settings.training:
        make_mask(ctx, MASK, h.dtype)
    return dropout(ctx, h, m.dropout)


@runs(T5Layer)
def layer(ctx: Context, m: T5Layer, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → the same (T5Block.forward); a variable holds the probabilities of eager attention until others take its place."""
    held = ctx.probabilities = []
    h = F.add(x, dropout(ctx, branch(ctx, m.layer_norm, m.attention, x), m.dropout), "after attention")
    if m.cross_norm is not None and m.cross_attention is not None:
        ctx.probabilities = []
        h = F.add(h, dropout(ctx, branch(ctx, m.cross_norm, m.cross_attention, h, "cross_"), m.dropout), "after attention to the encoder")
    with ctx.inside("ff"):
        held, ctx.probabilities = ctx.probabilities, None
        y = ctx.run(m.ff, ctx.run(m.ff_norm, h, "layer_norm"), "DenseReluDense")
    y = F.add(h, dropout(ctx, y, m.dropout), "hidden_states")
    del held
    return y


def branch(ctx: Context, norm: T5Norm, m: T5Attention, x: Tensor, prefix: str = "") -> Tensor:
    """A norm, and attention."""
    normed = ctx.run(norm, x, f"{prefix}layer_norm")
    return ctx.run(m, normed, f"{prefix}attention")


@runs(T5MLP)
def mlp(ctx: Context, m: T5MLP, x: Tensor) -> Tensor:
    """x (…, hidden) → the same (T5DenseActDense.forward, T5DenseGatedActDense.forward)."""
    h = apply_activation(ctx.run(m.wi, x), m.activation)
    if m.gate is not None:
        h = F.mul(h, ctx.run(m.gate, x), "gated")
    return ctx.run(m.wo, F.cast(dropout(ctx, h, m.dropout), ctx.settings.dtype, "input in the weights' dtype"))


@runs(T5Attention)
def attention(ctx: Context, m: T5Attention, x: Tensor) -> Tensor:
    """x (batch, queries, hidden) → the same (T5Attention.forward)."""
    source = ctx.shared[STATES] if m.kind == "cross" else x
    query, key, value = ctx.run(m.q, x), ctx.run(m.k, source), ctx.run(m.v, source)
    bias = position_bias(ctx, m, query, source)
    rows, columns = by_head(m, query), by_head(m, key)
    if ctx.settings.attention == "eager":
        out = eager(ctx, m, [F.split_heads(query, rows), *remembered(ctx, m, F.split_heads(key, columns), F.split_heads(value, columns))], bias)
    elif name_of(m) in ctx.differentiable:
        out = written_out(ctx, m, [F.split_heads(query, rows), F.split_heads(key, columns), F.split_heads(value, columns)], bias)
    else:
        key, value = remembered(ctx, m, F.view(key, columns), F.view(value, columns))
        out = F.scaled_dot_product_attention(F.view(query, rows), key, value, mask=under_autocast(in_order(ctx, m, bias)))
    flat = F.view(out, (*query.shape[:2], m.o.inputs))
    del out
    return ctx.run(m.o, flat)


def by_head(m: T5Attention, x: Tensor) -> Shape:
    """The shape of a projection's output, heads apart, as many as this rank has."""
    return (x.shape[0], Axis("num_heads", x.shape[-1].size // m.head_dim), x.shape[1], Axis("d_kv", m.head_dim))


def remembered(ctx: Context, m: T5Attention, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, in inference those in the cache; the encoder's are not kept."""
    if m.kind == "encoder":
        return key, value
    return ctx.remember(key, "key"), ctx.remember(value, "value")


def name_of(m: T5Attention) -> str:
    """The key in ``ctx.shared`` of the bias that all layers of a kind use."""
    return f"{m.kind} position bias"


def position_bias(ctx: Context, m: T5Attention, query: Tensor, source: Tensor) -> Tensor:
    """The bias of all layers of a kind (1, heads, queries, keys), which the first one makes: rows of its table, or zeros."""
    name, square = name_of(m), (query.shape[1], Axis("keys", source.shape[1].size))
    whole = (Axis("one", 1), Axis("num_heads", m.num_heads // ctx.settings.tp), *square)
    if m.apart:
        return own_bias(ctx, m, whole, query.dtype)
    if name in ctx.shared:
        bias = ctx.shared[name]
        if bias.requires_grad:
            ctx.differentiable.add(name)
        return bias
    if not m.buckets:
        return zeros(ctx, name, whole, query.dtype)
    table = ctx.parameter(next(m.own_weights()))
    if table.requires_grad:
        ctx.differentiable.add(name)
    rows = F.embedding(distances(ctx, m, square), table, Axis("num_heads", m.num_heads), "position bias")
    bias = ctx.shared[name] = F.view(rows, whole)
    return bias


def own_bias(ctx: Context, m: T5Attention, whole: Shape, dtype: str) -> Tensor:
    """The bias of one layer: rows of its table, or zeros (UMT5Attention.forward)."""
    ctx.differentiable.discard(name_of(m))
    if not m.buckets:
        return ctx.tape.new(whole, dtype, "zeros")
    table = ctx.parameter(next(m.own_weights()))
    rows = F.embedding(distances(ctx, m, whole[2:]), table, Axis("num_heads", m.num_heads), "position bias")
    if table.requires_grad:
        ctx.differentiable.add(name_of(m))
    return F.view(rows, whole)


def zeros(ctx: Context, name: str, shape: Shape, dtype: str) -> Tensor:
    """A bias of nothing. Checkpointing makes it a leaf of the graph, whose gradient stays to the end of the step."""
    if ctx.settings.records and not ctx.tape.grad_enabled:
        ctx.differentiable.add(name)
    bias = ctx.tape.new(shape, dtype, "zeros")
    if name in ctx.differentiable and ctx.tape.grad_enabled:
        bias.node, bias.requires_grad = Leaf(f"activations/gradient of {name}", keeps=True), True
    ctx.shared[name] = bias
    return bias


def distances(ctx: Context, m: T5Attention, square: Shape) -> Tensor:
    """The bucket of each pair of tokens, and what is made on the way (_relative_position_bucket)."""
    tape = ctx.tape
    relative = tape.new(square, "int64", "relative_position")
    buckets = tape.new(square, "int64", "relative_buckets") if m.kind == "encoder" else None
    apart = tape.new(square, "int64", "distance")
    small = tape.new(square, "bool", "is_small")
    large = [tape.new(square, "int64", "buckets of large distances") for _ in range(3)]
    del large[:2]
    chosen = tape.new(square, "int64", "chosen buckets")
    if buckets is None:
        buckets = tape.new(square, "int64", "relative_buckets")
    del relative, apart, small, large, chosen
    return buckets


def in_order(ctx: Context, m: T5Attention, bias: Tensor) -> Tensor:
    """The bias copied into order, in the decoder with later tokens hidden; zeros are so already (create_position_bias_mask)."""
    if m.kind == "cross":
        return bias
    if m.kind == "decoder" and ctx.settings.training:
        flags = ctx.tape.new(bias.shape[2:], "bool", "causal flags")
        bias = F.masked_fill(bias, flags, "bias of earlier tokens")
    return F.clone(bias, "bias in order")


def written_out(ctx: Context, m: T5Attention, heads: list[Tensor], bias: Tensor) -> Tensor:
    """(batch, heads, queries, head_dim) of queries, keys and values → (batch, queries, heads, head_dim), in fp32.

    Saves scaled queries and keys, the probabilities and the values (_scaled_dot_product_attention_math).
    """
    query, key, value = heads
    dtype, single = query.dtype, ctx.has_one_sequence
    bias = under_autocast(in_order(ctx, m, bias))
    autocast, ctx.tape.autocast = ctx.tape.autocast, None
    wide = [F.cast(x, "float32" if dtype in HALF else dtype, f"{name} in fp32") for x, name in ((query, "query"), (key, "key"), (value, "value"))]
    scaled = F.scale(wide[0], "scaled query")
    shape = (*query.shape[:3], Axis("keys", key.shape[2].size))
    scores = scan.contract(scaled, F.scale(wide[1], "scaled key"), shape, "scores", copies="" if single else "xy")
    scores = F.add(scores, bias, "scores + bias")
    scores = F.softmax(scores, name="probabilities")
    with ctx.tape.no_grad():
        returned = F.cast(scores, dtype, "probabilities in the model's dtype")
    out = F.cast(scan.contract(scores, wide[2], (*query.shape[:3], value.shape[3]), "attention output", copies="" if single else "yg"), dtype)
    del wide, scaled, returned, scores
    ctx.tape.autocast = autocast
    return F.clone(out, "attention output in order")


def eager(ctx: Context, m: T5Attention | BartAttention, heads: list[Tensor], bias: Tensor | None = None) -> Tensor:
    """(batch, heads, queries, head_dim) of queries, keys and values → (batch, queries, heads, head_dim) (eager_attention_forward); BART has no bias."""
    query, key, value = heads
    single = ctx.has_one_sequence
    shape = (*query.shape[:3], Axis("keys", key.shape[2].size))
    scores = F.scale(scan.contract(query, key, shape, "scores", copies="" if single else "xy"), "scaled scores")
    scores = scores if bias is None else F.add(scores, bias, "scores + bias")
    if m.kind == "decoder" and ctx.settings.training:
        scores = F.add(scores, ctx.shared[MASK], "masked scores")
    scores = dropout(ctx, F.softmax(scores, name="probabilities"), m.dropout)
    if ctx.probabilities is not None:
        ctx.probabilities.append(scores)
    out = scan.contract(scores, value, (*query.shape[:3], value.shape[3]), "attention output", copies="" if single else "yg")
    return F.clone(out, "attention output in order")


@runs(T5Head)
def head(ctx: Context, m: T5Head, x: Tensor) -> Tensor:
    """x (batch, seq, hidden) → loss, of logits in their own dtype (T5ForConditionalGeneration.forward); autocast takes it in fp32."""
    h = F.scale(x, "scaled output") if m.scaled else x
    logits = ctx.run(m.proj, h)
    if not ctx.settings.training:
        return logits
    ctx.shared["logits"] = logits
    labels = Tensor(ctx.tape, (ctx.batch, ctx.seq), "int64", None)  # the batch's own
    wide = F.cast(logits, "float32" if ctx.settings.autocast else logits.dtype, "logits in fp32")
    del logits
    return F.nll_loss(F.log_softmax(wide), labels)
