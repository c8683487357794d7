"""ViT and DINO's ViTs: patches, a class token, learned positions, layers of multi-head attention; a pooler where the file's class has one.

Source: transformers, models/vit/modeling_vit.py.
"""

from __future__ import annotations

from memcalc.components import LayerNorm, Linear
from memcalc.components.vision import FirstToken, ImageEmbedding, PatchConv
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
    sizes = Vision(patch, size, channels=config.int("num_channels"), class_tokens=1, alone=True)
    front = ImageEmbedding(
        PatchConv("patch_embeddings/projection", hidden, sizes.channels, patch, bias=True),
        positions=sizes.length(1, size),
        position_name="position_embeddings",
        class_name="cls_token",
        leading=True,
        dropout=config.float("hidden_dropout_prob"),
        outer=True,
    )
    intermediate = Axis("intermediate_size", config.int("intermediate_size"))
    qkv_bias, dropouts = config.bool("qkv_bias"), (front.dropout, config.float("attention_probs_dropout_prob"))
    layer = vision.image_layer(hidden, intermediate, heads, out="o_proj", activation=config.str("hidden_act"), qkv_bias=qkv_bias, dropouts=dropouts)
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=(
            Block("vit", front, role="embedding"),
            Block("vit/layers", layer, count),
            Block("vit/layernorm", LayerNorm(hidden), role="norm"),
            last_block(config, hidden),
        ),
        hidden_size=hidden.size,
        num_layers=count,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden.size // heads,
        max_position_embeddings=front.positions,
        vision=sizes,
    )


def last_block(config: Config, hidden: Axis) -> Block:
    """The pooler, or the classifier."""
    names = config.strs("architectures", default=("ViTModel",))
    if names == ("ViTForImageClassification",):
        labels = config.get("id2label")
        num_labels = len(labels) if isinstance(labels, dict) else config.int("num_labels", default=2)
        return Block("classifier", FirstToken(Linear("classifier", hidden, Axis("num_labels", num_labels), bias=True)), role="head")
    if names != ("ViTModel",):
        raise config.error(f"architectures {', '.join(names)} is not known for vit; ViTModel and ViTForImageClassification are")
    width = Axis("pooler_output_size", config.int("pooler_output_size", default=hidden.size))
    return Block("vit/pooler", FirstToken(Linear("dense", hidden, width, bias=True), activation=config.str("pooler_act", default="tanh")), role="head")
