"""ChatGLM 2 and 3, GLM-4 9B: grouped-query attention of which half a head is turned, SwiGLU, a head of its own.

Source: modeling_chatglm.py and configuration_chatglm.py, the code that comes with THUDM/chatglm3-6b (`trust_remote_code`). The first ChatGLM
bears the same ``model_type`` and is another model, whose files lack ``ffn_hidden_size``.
"""

from __future__ import annotations

from memcalc.components import DecoderLayer, Embedding, Head, LayerNorm, Linear, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _remote as remote
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("chatglm",)
ARCHITECTURES = {"ChatGLMModel": "chatglm", "ChatGLMForConditionalGeneration": "chatglm"}


def spec(config: Config) -> ModelSpec:
    """Pre-norm layers; which biases there are, the file says."""
    heads, grouped, bias = config.int("num_attention_heads"), config.bool("multi_query_attention"), config.bool("add_bias_linear")
    sizes = text.axes(
        hidden=config.int("hidden_size"),
        intermediate=config.int("ffn_hidden_size"),
        vocab=config.int("padded_vocab_size"),
        layers=config.int("num_layers", "num_hidden_layers"),
        heads=heads,
        kv_heads=config.int("multi_query_group_num") if grouped else heads,
        head_dim=config.int("kv_channels"),
    )
    remote.divided(config, heads, sizes.num_kv_heads, "queries share multi_query_group_num heads")
    norm = RMSNorm(sizes.hidden) if config.bool("rmsnorm") else LayerNorm(sizes.hidden)
    rotary = Rotary(sizes.head_dim // 2, "repeated", sliced=True)
    qkv_bias = bias or config.bool("add_qkv_bias")
    layer = DecoderLayer(
        norm,
        remote.fused_heads(sizes, ("query_key_value", "dense"), bias=qkv_bias, out_bias=bias, rotary=rotary),
        norm,
        remote.fused_gated(sizes, ("dense_h_to_4h", "dense_4h_to_h"), bias=bias),
    )
    tied = config.bool("tie_word_embeddings", default=False)
    whole = text.language_model(
        config,
        sizes,
        (Block("encoder/layers", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied),
        norm=norm if config.bool("post_layer_norm") else None,
        head=Head(Linear("output_layer", sizes.hidden, sizes.vocab, split="column"), tied=tied),
        names=("embedding/word_embeddings", "encoder/final_layernorm", "output_layer"),
        max_positions=("seq_length",),
    )
    return remote.presumed(whole, "transformers' GLM code with one projection for queries, keys and values")
