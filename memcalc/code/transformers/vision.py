"""Vision towers: from pixels to the tokens that take their places in a text."""

from __future__ import annotations

from memcalc.code.context import TOWER, Context, program_for, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.code.transformers.mask import make_mask, mask_name
from memcalc.components.vision import AveragePool, Deepstack, FirstToken, ImageEmbedding, Join, PatchConv, Projector, Unseen
from memcalc.specs.model import Axis, Weight
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.image import average_pool, class_and_patches, conv, masked_scatter, put_rows, rows_at
from memcalc.tape.functional.scan import reordered
from memcalc.tape.tensor import Shape, Tensor


@runs(PatchConv)
def patch_conv(ctx: Context, m: PatchConv, x: Tensor) -> Tensor:
    """Pixels in the weight's dtype → (images, hidden, patches): one convolution whose stride is its kernel (nn.Conv2d, nn.Conv3d)."""
    params = [F.cast_weight(ctx.parameter(w), ctx.weight_path(w)) for w in m.own_weights()]
    return conv(x, params, patches_shape(ctx, m, x))


def cast_pixels(ctx: Context, pixels: Tensor) -> Tensor:
    """Pixels in the model's dtype."""
    return F.cast(pixels, ctx.settings.dtype, "pixel_values in the model's dtype")


def patches_shape(ctx: Context, m: PatchConv, x: Tensor) -> Shape:
    """Patches of each image, each as wide as the tower; patches that are cut out already have an axis of their own."""
    if len(x.shape) == 2:
        return (x.shape[0], m.hidden)
    across = x.shape[-1].size // m.patch
    return (x.shape[0], Axis("patches", across * across), m.hidden)


@runs(ImageEmbedding)
def image_embedding(ctx: Context, m: ImageEmbedding, pixels: Tensor) -> Tensor:
    """pixels (images, channels, height, width) → (images, patches, hidden) (ViTEmbeddings, CLIPVisionEmbeddings, SiglipVisionEmbeddings)."""
    weights = list(m.own_weights())
    with ctx.inside(m.embedding_name):
        x = pick_images(ctx, pixels) if m.picked else cast_pixels(ctx, pixels)
        if m.outer and not ctx.settings.records and x is not pixels:
            ctx.shared["pixel_values"] = x
        x = ctx.run(m.patches, x)
        inner = [w._replace(name=w.name.removeprefix(f"{m.embedding_name}/")) for w in weights]
        if m.class_name:
            x = class_and_patches(ctx.parameter(inner[0]), x, (ctx.batch, ctx.seq, m.patches.hidden))
        x = dropout(ctx, F.add(x, positions(ctx, inner[-1], each=m.picked), "embeddings"), m.dropout)
    return x if m.norm is None else ctx.run(m.norm, x, m.norm_name)


def pick_images(ctx: Context, pixels: Tensor) -> Tensor:
    """Images in the model's dtype, without those that are padding (Idefics3Model.get_image_features)."""
    pixels = F.like(cast_pixels(ctx, pixels), "real images")
    ctx.shared[f"{TOWER}pixel_attention_mask"] = ctx.tape.new((pixels.shape[0], *pixels.shape[2:]), "bool", "pixel_attention_mask")
    return pixels


def positions(ctx: Context, table: Weight, *, each: bool = False) -> Tensor:
    """All rows of the table, looked up (with `each`, for each image) or as they are."""
    if not table.name.endswith("/weight"):
        return ctx.parameter(table)
    rows, width = table.shape[-2], table.shape[-1]
    if each:
        return F.embedding(ctx.tape.new((ctx.batch, ctx.seq), "int64", "position_ids"), ctx.parameter(table), width, "position_embeds")
    ids = Tensor(ctx.tape, (Axis("one", 1), rows), "int64", None)
    return F.embedding(ids, ctx.parameter(table), width, "position_embeds")


@runs(FirstToken)
def first_token(ctx: Context, m: FirstToken, x: Tensor) -> Tensor:
    """x (images, patches, hidden) → the class token pooled; or its logits, in training the loss (ViTPooler, ViTForImageClassification)."""
    y = ctx.run(m.proj, F.narrow(x, (x.shape[0], x.shape[-1])))
    if m.activation:
        ctx.shared["last_hidden_state"] = x  # the model returns both
        return apply_activation(y, m.activation)
    if not ctx.settings.training:
        return y
    ctx.shared["logits"] = y
    labels = Tensor(ctx.tape, (ctx.batch,), "int64", None)  # the batch's own
    return F.nll_loss(F.log_softmax(F.cast(y, "float32", "logits in fp32") if ctx.settings.autocast else y), labels)


@runs(Unseen)
def unseen(ctx: Context, m: Unseen, x: Tensor) -> Tensor:
    """x itself; what comes of it is held by the tower's output, with all that its graph saves, until that is dropped."""
    before = len(ctx.tape.nodes)
    y = program_for(ctx.settings.code, type(m.module))(ctx, m.module, F.narrow(x, (x.shape[0], x.shape[-1])) if m.first_token else x)
    ctx.asides += ctx.tape.set_aside(before, y)
    if m.first_token:
        for node in ctx.asides:
            node.forget()
    return x


@runs(Projector)
def projector(ctx: Context, m: Projector, x: Tensor) -> Tensor:
    """Features of the tower → as wide as the text (LlavaMultiModalProjector.forward)."""
    if m.held:
        ctx.set_aside((x,))
    if m.drop_class:
        x = F.narrow(x, (x.shape[0], Axis("patches", x.shape[1].size - 1), x.shape[2]))
        x = x if ctx.tape.autocast else F.clone(x, "features in order")
    if m.mlp is None:
        assert m.linear is not None
        return ctx.run(m.linear, x, m.name)
    return ctx.run(m.mlp.down, apply_activation(ctx.run(m.mlp.up, x), m.mlp.activation))


@runs(Join)
def join(ctx: Context, m: Join, x: Tensor) -> Tensor:
    """The text's embeddings with those of images in their places; the model's forward holds both until the last layer is through (LlavaModel.forward)."""
    features = ctx.beside.pop()
    ctx.set_aside((features,))
    flat = reordered(features, features.shape, "image features in a row") if m.listed else features
    for k in range(m.deep):
        deep = ctx.shared[f"deepstack {k}"]
        ctx.shared[f"deepstack {k} in a row"] = reordered(deep, deep.shape, f"deepstack {k} in a row")
    del features
    mask = ctx.tape.new((ctx.batch, ctx.seq), "bool", "mask of image tokens")
    if m.listed:
        ctx.shared["image features in a row"] = Tensor(ctx.tape, flat.shape, flat.dtype, flat.storage)
    if m.masks:
        for window in ctx.settings.windows:
            if m.masks == "all" or window is not None or ctx.settings.attention == "eager":
                make_mask(ctx, mask_name(window), x.dtype, each=m.masks == "all" or window is not None)
    if not ctx.settings.records:
        ctx.shared["places of image features"] = mask
    return masked_scatter(x, mask, flat)


@runs(Deepstack)
def deepstack(ctx: Context, m: Deepstack, x: Tensor) -> Tensor:
    """x with a middle layer's tokens added where images stand (Qwen3VLTextModel._deepstack_process)."""
    ctx.holds_output = False
    features = ctx.shared[f"{m.name} in a row"]
    y = F.clone(x, "hidden_states of all tokens")
    return put_rows(y, F.add(rows_at(y, features.shape, "hidden_states of images"), features, "sum with image features"))


@runs(AveragePool)
def average_of_patches(ctx: Context, m: AveragePool, x: Tensor) -> Tensor:
    """x (images, patches, hidden) → (images, tokens, text's width) (Gemma3MultiModalProjector.forward)."""
    ctx.set_aside((x,))
    tokens = Axis("tokens", x.shape[1].size // m.side**2)
    planes = F.clone(x, "features by plane")
    h = ctx.run(m.norm, average_pool(planes, (x.shape[0], tokens, x.shape[2])), "mm_soft_emb_norm")
    h = F.clone(h, "averages in order")
    weight = next(m.own_weights())
    h = F.linear(h, F.cast_weight(ctx.parameter(weight), ctx.weight_path(weight)), None, m.outputs, "output")
    return F.cast(h, x.dtype, "output in the features' dtype")
