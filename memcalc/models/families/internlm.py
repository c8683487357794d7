"""InternLM, Yi, Aquila, XVERSE, Skywork and Orion in their first files: Llama under other names, with biases (InternLM) or LayerNorms (Orion).

Source: the code that comes with internlm/internlm-7b, 01-ai/Yi-6B, BAAI/AquilaChat2-7B, xverse/XVERSE-7B, Skywork/Skywork-13B-base and
OrionStarAI/Orion-14B-Base (`trust_remote_code`).
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.components.looped import RemoteHead
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _remote as remote
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("internlm", "Yi", "aquila", "xverse", "skywork", "orion")
ARCHITECTURES = {
    "InternLMForCausalLM": "internlm",
    "YiForCausalLM": "Yi",
    "AquilaForCausalLM": "aquila",
    "XverseForCausalLM": "xverse",
    "SkyworkForCausalLM": "skywork",
    "OrionForCausalLM": "orion",
}


def spec(config: Config) -> ModelSpec:
    """As many KV heads as heads where the file names none."""
    sizes = text.plain_sizes(config, kv_heads=config.int("num_key_value_heads", default=config.int("num_attention_heads")))
    norm = LayerNorm(sizes.hidden) if config.model_type == "orion" else RMSNorm(sizes.hidden)
    bias, rotary = config.bool("bias" if config.model_type == "internlm" else "attention_bias", default=False), Rotary(sizes.head_dim, precision="all")
    attention = decoder.attention(sizes, qkv_bias=bias, o_bias=bias, rotary=rotary)
    layer = DecoderLayer(norm, attention, norm, decoder.gated_mlp(sizes, config.str("hidden_act", default="silu")))
    tied = config.bool("tie_word_embeddings", default=False)
    whole = text.language_model(
        config,
        sizes,
        (Block("layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied),
        norm=norm,
        head=RemoteHead(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied),
    )
    return remote.presumed(whole, "transformers' Llama code")
