"""ViT and DINO's ViTs: patches, a class token, learned positions, layers of multi-head attention; a pooler where the file's class has one.

Source: transformers, models/vit/modeling_vit.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import LayerNorm, Linear
from memcalc.components.vision import ImageEmbedding, PatchConv
from memcalc.models.config import Config
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, Block, ModelSpec
from memcalc.specs.vision import Vision

MODEL_TYPES = ("vit",)
ARCHITECTURES = {"ViTModel": "vit", "ViTForImageClassification": "vit"}


def spec(config: Config) -> ModelSpec:
    """The model of the class that the file names: ``ViTModel`` with its pooler, or a classifier without.

    Raises:
        ModelError: it is a class that is not known, or does not say how many labels it has.
    """
    hidden, patch, size = Axis("hidden_size", config.int("hidden_size")), config.int("patch_size"), config.int("image_size")
    heads, count = config.int("num_attention_heads"), config.int("num_hidden_layers")
    vision.whole_heads(config, hidden.size, heads)
    sizes = Vision(patch, size, channels=config.int("num_channels"), class_tokens=1)
    front = ImageEmbedding(
        PatchConv("patch_embeddings/projection", hidden, sizes.channels, patch, bias=True),
        positions=sizes.length(1, size),
        position_name="position_embeddings",
        class_name="cls_token",
        leading=True,
        dropout=config.float("hidden_dropout_prob"),
    )
    intermediate = Axis("intermediate_size", config.int("intermediate_size"))
    layer = vision.image_layer(hidden, intermediate, heads, out="o_proj", activation=config.str("hidden_act"), qkv_bias=config.bool("qkv_bias"))
    layer = replace(layer, dropout=front.dropout)
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=(
            vision.end("embeddings", front),
            *vision.layers(("layers", layer, count)),
            vision.end("layernorm", LayerNorm(hidden)),
            last_block(config, hidden),
        ),
        hidden_size=hidden.size,
        num_layers=count,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden.size // heads,
        vision=sizes,
        untraced=("all of it: it reads no text",),
    )


def last_block(config: Config, hidden: Axis) -> Block:
    """The pooler, or the classifier."""
    names = config.strs("architectures", default=("ViTModel",))
    if names == ("ViTForImageClassification",):
        labels = config.get("id2label")
        num_labels = len(labels) if isinstance(labels, dict) else config.int("num_labels", default=2)
        return vision.end("classifier", Linear("classifier", hidden, Axis("num_labels", num_labels), bias=True))
    if names != ("ViTModel",):
        raise config.error(f"architectures {', '.join(names)} is not known for vit; ViTModel and ViTForImageClassification are")
    return vision.end("pooler", Linear("dense", hidden, Axis("pooler_output_size", config.int("pooler_output_size", default=hidden.size)), bias=True))
