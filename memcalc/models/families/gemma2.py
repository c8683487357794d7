"""Gemma 2: norms before and after each branch, windows in every other layer, scores and logits squashed by tanh. VaultGemma has none after.

Source: transformers, models/gemma2/modeling_gemma2.py, models/vaultgemma/modeling_vaultgemma.py.
"""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, Head, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.models.families.gemma import SCALE_BYTES
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("gemma2", "vaultgemma")
ARCHITECTURES = {"Gemma2ForCausalLM": "gemma2", "VaultGemmaForCausalLM": "vaultgemma"}


def spec(config: Config) -> ModelSpec:
    """Grouped-query attention and GeGLU; with soft-caps the code is eager."""
    sizes = decoder.read_sizes(config, head_dim_follows=False)
    norm, bias = RMSNorm(sizes.hidden, "gemma"), config.bool("attention_bias", default=False)
    after = None if config.model_type == "vaultgemma" else norm
    softcap = config.optional_float("attn_logit_softcapping", default=50.0)
    mlp = decoder.gated_mlp(sizes, config.str("hidden_activation", default="gelu_pytorch_tanh"))

    def layer(window: int | None) -> DecoderLayer:
        attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, window=window)
        return DecoderLayer(norm, replace(attention, softcap=softcap), norm, mlp, post_mixer_norm=after, post_mlp_norm=after)

    kinds = text.layer_windows(config, sizes.num_layers, pattern=2, window=config.optional_int("sliding_window", default=4096))
    tied, rotary = config.bool("tie_word_embeddings", default=True), Rotary(sizes.head_dim)
    lm_head = Linear("lm_head", sizes.hidden, sizes.vocab, split="column")
    return text.language_model(
        config,
        sizes,
        decoder.layer_blocks(kinds, layer),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, scaled=True, tied=tied),
        norm=norm,
        head=Head(lm_head, tied=tied, softcap=config.optional_float("final_logit_softcapping", default=30.0)),
        buffer_bytes=decoder.rotary_buffer_bytes(rotary) + SCALE_BYTES,
        attentions=("eager", "flash_attention_2") if softcap is not None else ("eager", "sdpa", "flash_attention_2"),
    )
