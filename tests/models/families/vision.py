"""Random small configurations of models that see images, as transformers would accept them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

FAMILIES = (
    *("llava", "gemma3", "gemma4", "llama4", "mllama", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "glm4v"),
    *("paligemma", "idefics3", "smolvlm", "internvl", "mistral3"),
)

TIED = ("gemma3", "gemma4", "paligemma")
"""Those whose head is the embedding's table in every file."""


@st.composite
def configs(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """A config.json of a small model whose sizes go together.

    Args:
        draw: of hypothesis.
        model_type: one of `FAMILIES`.
    """
    hidden = 16 * draw(st.integers(1, 3))
    text: dict[str, Any] = {
        "hidden_size": hidden,
        "intermediate_size": draw(st.integers(1, 40)),
        "num_hidden_layers": draw(st.integers(2, 4)),
        "num_attention_heads": 4,
        "num_key_value_heads": draw(st.sampled_from((1, 2, 4))),
        "vocab_size": draw(st.integers(20, 90)),
        "max_position_embeddings": 512,
        "pad_token_id": 0,
    }
    return {"model_type": model_type, "tie_word_embeddings": False} | MAKERS[model_type](draw, text)


def llava(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """CLIP beside Llama."""
    return {"text_config": {"model_type": "llama", **text}, "vision_config": clip(draw, "clip_vision_model"), "image_token_index": 3, "image_token_id": 3}


def clip(draw: st.DrawFn, model_type: str) -> dict[str, Any]:
    """Images of four patches either way."""
    width = 8 * draw(st.integers(1, 3))
    return {
        "model_type": model_type,
        "hidden_size": width,
        "intermediate_size": draw(st.integers(1, 40)),
        "num_hidden_layers": draw(st.integers(2, 3)),
        "num_attention_heads": 2,
        "num_channels": 3,
        "image_size": 28,
        "patch_size": 7,
    }


def gemma3(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """SigLIP beside Gemma 3, four tokens for an image."""
    text = {"model_type": "gemma3_text", "head_dim": 8, "sliding_window": 16, **text}
    return {
        "text_config": text,
        "vision_config": clip(draw, "siglip_vision_model") | {"vision_use_head": False},
        "mm_tokens_per_image": 4,
        "tie_word_embeddings": True,
    }


def gemma4(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """Experts or none, inputs of each layer or none, four patches for a token, ears or none."""
    layers = ["sliding_attention"] * (text["num_hidden_layers"] - 1) + ["full_attention"]
    text |= {
        "model_type": "gemma4_text",
        "head_dim": 8,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": draw(st.booleans()),
        "layer_types": layers,
        "sliding_window": 16,
        "enable_moe_block": draw(st.booleans()),
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 8,
        "hidden_size_per_layer_input": draw(st.sampled_from((0, 8))),
        "vocab_size_per_layer_input": text["vocab_size"],
        "num_kv_shared_layers": 0,
        "use_bidirectional_attention": draw(st.sampled_from(("vision", None))),
    }
    vision = {
        "model_type": "gemma4_vision",
        "hidden_size": 16,
        "intermediate_size": draw(st.integers(1, 40)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "patch_size": 7,
        "pooling_kernel_size": 2,
        "position_embedding_size": 9,
        "standardize": draw(st.booleans()),
        "use_clipped_linears": False,
    }
    ears = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "subsampling_conv_channels": [8, 4], "conv_kernel_size": 3}
    ears |= {"model_type": "gemma4_audio", "output_proj_dims": 12, "use_clipped_linears": draw(st.booleans())}
    return {"text_config": text, "vision_config": vision, "audio_config": draw(st.sampled_from((None, ears))), "tie_word_embeddings": True}


def llama4(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """Experts in every other layer, four patches for a token."""
    text |= {
        "model_type": "llama4_text",
        "head_dim": 8,
        "intermediate_size_mlp": draw(st.integers(1, 40)),
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 16,
        "hidden_act": "silu",
    }
    vision = {
        "model_type": "llama4_vision_model",
        "hidden_size": 16,
        "intermediate_size": 64,
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": 2,
        "num_channels": 3,
        "image_size": 28,
        "patch_size": 7,
        "vision_output_dim": 24,
        "projector_input_dim": 24,
        "projector_output_dim": 24,
        "pixel_shuffle_ratio": 0.5,
    }
    return {"text_config": text, "vision_config": vision}


def mllama(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """One layer of cross-attention, images in up to four tiles."""
    text |= {"model_type": "mllama_text_model", "cross_attention_layers": [1], "hidden_act": "silu"}
    vision = {
        "model_type": "mllama_vision_model",
        "hidden_size": 16,
        "intermediate_size": draw(st.integers(1, 40)),
        "num_hidden_layers": draw(st.integers(2, 3)),
        "num_global_layers": draw(st.integers(1, 2)),
        "attention_heads": 2,
        "num_channels": 3,
        "image_size": 28,
        "patch_size": 7,
        "vision_output_dim": 32,
        "max_num_tiles": 4,
        "intermediate_layers_indices": [0],
        "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1], [2, 2]],
    }
    return {"text_config": text, "vision_config": vision, "image_token_index": 3}


def qwen(draw: st.DrawFn, text: dict[str, Any], model_type: str, **more: Any) -> dict[str, Any]:
    """Patches of all images in one row, four of them for a token."""
    text |= {"model_type": f"{model_type}_text", "hidden_act": "silu"}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 0]}
    vision = {
        "model_type": model_type,
        "depth": draw(st.integers(1, 3)),
        "num_heads": 2,
        "patch_size": 7,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "in_chans": 3,
        **more,
    }
    return {"text_config": text, "vision_config": vision, "image_token_id": 3}


def qwen2_vl(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """A tower as wide at its end as the text."""
    return qwen(draw, text, "qwen2_vl", embed_dim=16, hidden_size=text["hidden_size"], mlp_ratio=draw(st.integers(1, 3)), hidden_act="quick_gelu")


def qwen2_5_vl(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """Windows of four patches either way in some layers."""
    whole = draw(st.sampled_from(([], [0])))
    inner = draw(st.integers(1, 40))
    more = {"hidden_size": 16, "intermediate_size": inner, "out_hidden_size": text["hidden_size"], "window_size": 28, "fullatt_block_indexes": whole}
    return qwen(draw, text, "qwen2_5_vl", hidden_act="silu", **more)


def qwen3_vl(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """Tokens of one middle layer for the text's first."""
    inner = draw(st.integers(1, 40))
    more = {"hidden_size": 16, "intermediate_size": inner, "out_hidden_size": text["hidden_size"], "num_position_embeddings": 16}
    return qwen(draw, text | {"head_dim": 8}, "qwen3_vl", deepstack_visual_indexes=[0], hidden_act="gelu_pytorch_tanh", **more)


def glm4v(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """A merger with a convolution."""
    text |= {"model_type": "glm4v_text", "hidden_act": "silu", "attention_bias": draw(st.booleans())}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}
    vision = {
        "model_type": "glm4v_vision",
        "depth": draw(st.integers(1, 3)),
        "hidden_size": 16,
        "intermediate_size": draw(st.integers(1, 40)),
        "out_hidden_size": text["hidden_size"],
        "num_heads": 2,
        "image_size": 28,
        "patch_size": 7,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "hidden_act": "silu",
        "attention_bias": False,
    }
    return {"text_config": text, "vision_config": vision, "image_token_id": 3}


def paligemma(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """SigLIP beside Gemma, a token for each patch."""
    text = {"model_type": "gemma", "head_dim": 8, **text}
    vision = clip(draw, "siglip_vision_model") | {"vision_use_head": False}
    return {"text_config": text, "vision_config": vision, "projection_dim": text["hidden_size"], "image_token_index": 3, "tie_word_embeddings": True}


def idefics3(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """SigLIP's layers beside Llama, four patches for a token."""
    return {"text_config": {"model_type": "llama", **text}, "vision_config": clip(draw, "idefics3_vision"), "scale_factor": 2, "image_token_id": 3}


def smolvlm(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """The same under another name."""
    return {"text_config": {"model_type": "llama", **text}, "vision_config": clip(draw, "smolvlm_vision"), "scale_factor": 2, "image_token_id": 3}


def internvl(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """Scaled branches beside Qwen 2, four patches for a token."""
    vision = clip(draw, "internvl_vision") | {"attention_bias": draw(st.booleans()), "use_qk_norm": draw(st.booleans())}
    vision |= {"use_mean_pooling": draw(st.booleans()), "norm_type": draw(st.sampled_from(("layer_norm", "rms_norm")))}
    text = {"model_type": "qwen2", "use_sliding_window": False, **text}
    return {"text_config": text, "vision_config": vision, "image_token_id": 3, "downsample_ratio": 0.5}


def mistral3(draw: st.DrawFn, text: dict[str, Any]) -> dict[str, Any]:
    """Pixtral beside Mistral, four patches for a token."""
    text = {"model_type": "mistral", "head_dim": 8, "sliding_window": None, **text}
    return {"text_config": text, "vision_config": clip(draw, "pixtral"), "image_token_index": 3, "spatial_merge_size": 2, "vision_feature_layer": -1}


MAKERS = {
    "llava": llava,
    "gemma3": gemma3,
    "gemma4": gemma4,
    "llama4": llama4,
    "mllama": mllama,
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "glm4v": glm4v,
    "paligemma": paligemma,
    "idefics3": idefics3,
    "smolvlm": smolvlm,
    "internvl": internvl,
    "mistral3": mistral3,
}
