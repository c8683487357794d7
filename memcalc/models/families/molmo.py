"""Molmo: a text model with one projection for queries, keys and values and a fused gated network; a tower whose sizes its code holds.

Source: modeling_molmo.py and config_molmo.py, the code that comes with allenai/Molmo-7B-D-0924 (`trust_remote_code`): ``MolmoForCausalLM``
builds the same tower (CLIP's ViT-L/14 at 336 pixels, 23 layers) for every file, which says nothing of it.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, LayerNorm, Linear, RMSNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _remote as remote
from memcalc.models.families import _text as text
from memcalc.models.families import _vision as vision
from memcalc.specs.model import Axis, Block, ModelSpec, Weight
from memcalc.specs.vision import Vision

MODEL_TYPES = ("molmo",)
ARCHITECTURES = {"MolmoForCausalLM": "molmo"}

NEW_ROWS = 128
"""``additional_vocab_size``: rows for tokens such as an image's, in a table of their own."""
WIDTH, INNER, LAYERS, POSITIONS, PATCH, SEEN = 1024, 4096, 23, 577, 14, 2
"""The tower: ``image_emb_dim``, ``image_mlp_dim``, ``image_num_layers``, ``image_num_pos``, ``image_patch_size``, number of ``vit_layers``."""


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers; the tower is counted and not run.

    Raises:
        ModelError: it has norms of another kind or in another place.
    """
    if config.bool("norm_after") or config.bool("attention_layer_norm") or config.str("layer_norm_type") != "rms":
        raise config.error("norm_after, attention_layer_norm and layer norms other than rms are not known to memcalc in molmo")
    hidden, heads = config.int("hidden_size"), config.int("num_attention_heads")
    rows = config.optional_int("embedding_size") or config.int("vocab_size")
    sizes = text.axes(
        hidden=hidden,
        intermediate=remote.divided(config, config.int("intermediate_size"), 2, "gate and up share intermediate_size"),
        vocab=rows,
        layers=config.int("num_hidden_layers"),
        heads=heads,
        kv_heads=config.int("num_key_value_heads"),
        head_dim=text.whole_heads(config, hidden, heads),
    )
    norm = RMSNorm(sizes.hidden)
    layer = DecoderLayer(
        norm, remote.fused_heads(sizes, ("att_proj", "attn_out"), bias=config.bool("qkv_bias")), norm, remote.fused_gated(sizes, ("ff_proj", "ff_out"))
    )
    blocks = (Block("transformer/blocks", layer, sizes.num_layers),)
    whole = remote.causal_lm(config, sizes, blocks, norm=norm, names=("transformer/wte", "transformer/ln_f", "transformer/ff_out"))
    whole = vision.with_tower(config, whole, tower(sizes.hidden, sizes.intermediate), vision=Vision(PATCH, 336, class_tokens=1, tokens=144))
    whole = remote.presumed(whole, "transformers' Llama code with fused projections")
    return replace(whole, untraced=(*whole.untraced, vision.NOT_RUN))


def tower(hidden: Axis, projected: Axis) -> tuple[Block, ...]:
    """The tower, pooling by attention over neighbouring patches, and a gated network to the text's width."""
    width, inner, norm = Axis("image_emb_dim", WIDTH), Axis("image_mlp_dim", INNER), LayerNorm(Axis("image_emb_dim", WIDTH))
    both = Axis("image_emb_dim * vit_layers", SEEN * WIDTH)
    heads = [Linear(name, width, width, bias=True) for name in ("wq", "wk", "wv", "wo")]
    layer = Parts(
        (
            *((f"attention/{head.name}", head) for head in heads),
            ("feed_forward/w1", Linear("w1", width, inner, bias=True)),
            ("feed_forward/w2", Linear("w2", inner, width, bias=True)),
            ("attention_norm", norm),
            ("ffn_norm", norm),
        )
    )
    patches = Linear("patch_embedding", Axis("channels * patch_size²", 3 * PATCH**2), width)
    front = Parts(
        (("patch_embedding", patches), ("pre_ln", norm)),
        (Weight("class_embedding", (width,)), Weight("positional_embedding", (Axis("positions", POSITIONS), width))),
    )
    pooling = Parts((*((name, Linear(name, both, width, bias=True)) for name in ("wq", "wk", "wv")), ("wo", heads[3])))
    names = zip(("w1", "w3", "w2"), (Linear("w1", width, projected), Linear("w3", width, projected), Linear("w2", projected, hidden)), strict=True)
    return (
        vision.end("vision_backbone/image_vit", front),
        *vision.layers(("vision_backbone/image_vit/transformer/resblocks", layer, LAYERS)),
        vision.end("vision_backbone/image_pooling_2d", pooling),
        vision.end("vision_backbone/image_projector", Parts(tuple(names))),
        vision.end("vision_backbone", Parts((), (Weight("pad_embed", (Axis("2", 2), both)),))),
        vision.end("transformer/wte", Parts((), (Weight("new_embedding", (Axis("additional_vocab_size", NEW_ROWS), hidden)),))),
    )
