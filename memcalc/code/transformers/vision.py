"""Vision towers: from pixels to the tokens that take their places in a text."""

from __future__ import annotations

from memcalc.code.context import Context, program_for, runs
from memcalc.code.transformers.dropout import dropout
from memcalc.components.vision import ImageEmbedding, Join, PatchConv, Projector, Unseen
from memcalc.specs.model import Axis, Weight
from memcalc.tape import functional as F
from memcalc.tape.functional.activations import apply_activation
from memcalc.tape.functional.image import class_and_patches, conv, masked_scatter
from memcalc.tape.tensor import Shape, Tensor


@runs(PatchConv)
def patch_conv(ctx: Context, m: PatchConv, x: Tensor) -> Tensor:
    """Pixels in the weight's dtype → (images, hidden, patches): one convolution whose stride is its kernel (nn.Conv2d, nn.Conv3d)."""
    params = [F.cast_weight(ctx.parameter(w), ctx.weight_path(w)) for w in m.own_weights()]
    return conv(x, params, patches_shape(ctx, m, x))


def patches_shape(ctx: Context, m: PatchConv, x: Tensor) -> Shape:
    """Patches of each image, each as wide as the tower."""
    across = x.shape[-1].size // m.patch
    return (x.shape[0], Axis("patches", across * across), m.hidden)


@runs(ImageEmbedding)
def image_embedding(ctx: Context, m: ImageEmbedding, pixels: Tensor) -> Tensor:
    """pixels (images, channels, height, width) → (images, patches, hidden) (ViTEmbeddings, CLIPVisionEmbeddings, SiglipVisionEmbeddings)."""
    weights = list(m.own_weights())
    with ctx.inside(m.embedding_name):
        x = ctx.run(m.patches, F.cast(pixels, ctx.settings.dtype, "pixel_values in the model's dtype"))
        inner = [w._replace(name=w.name.removeprefix(f"{m.embedding_name}/")) for w in weights]
        if m.class_name:
            x = class_and_patches(ctx.parameter(inner[0]), x, (ctx.batch, ctx.seq, m.patches.hidden))
        x = dropout(ctx, F.add(x, positions(ctx, inner[-1]), "embeddings"), m.dropout)
    return x if m.norm is None else ctx.run(m.norm, x, m.norm_name)


def positions(ctx: Context, table: Weight) -> Tensor:
    """All rows of the table, looked up or as they are."""
    if not table.name.endswith("/weight"):
        return ctx.parameter(table)
    rows, width = table.shape[-2], table.shape[-1]
    ids = Tensor(ctx.tape, (Axis("one", 1), rows), "int64", None)
    return F.embedding(ids, ctx.parameter(table), width, "position_embeds")


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
    ctx.asides += ctx.tape.set_aside(len(ctx.tape.nodes), x) if m.held else []
    if m.drop_class:
        x = F.narrow(x, (x.shape[0], Axis("patches", x.shape[1].size - 1), x.shape[2]))
        x = x if ctx.tape.autocast else F.clone(x, "features in order")
    assert m.mlp is not None
    return ctx.run(m.mlp.down, apply_activation(ctx.run(m.mlp.up, x), m.mlp.activation))


@runs(Join)
def join(ctx: Context, m: Join, x: Tensor) -> Tensor:
    """The text's embeddings with those of images in their places; the model's forward holds both until the last layer is through (LlavaModel.forward)."""
    features = ctx.beside.pop()
    flat = F.clone(features, "image features in a row")
    ctx.asides += ctx.tape.set_aside(len(ctx.tape.nodes), features)
    mask = ctx.tape.new((ctx.batch, ctx.seq), "bool", "mask of image tokens")
    ctx.shared["image features in a row"] = flat
    if not ctx.settings.training:
        ctx.shared["places of image features"] = mask
    return masked_scatter(x, mask, flat)
