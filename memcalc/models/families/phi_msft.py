"""Phi 1, 1.5 and 2 as their first files have them: one projection for queries, keys and values, otherwise transformers' Phi.

Source: modeling_phi.py and configuration_phi.py, modeling_mixformer_sequential.py, the code that came with microsoft/phi-2 and
microsoft/phi-1_5 (`trust_remote_code`).
"""

from __future__ import annotations

from memcalc.components import MLP, Embedding, Head, LayerNorm, Linear, ParallelLayer, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _remote as remote
from memcalc.models.families import _text as text
from memcalc.specs.model import Block, ModelSpec

MODEL_TYPES = ("phi-msft", "mixformer-sequential")
ARCHITECTURES = {"MixFormerSequentialForCausalLM": "mixformer-sequential"}


def spec(config: Config) -> ModelSpec:
    """One norm before attention and network in parallel, biases everywhere; the network is four times as wide unless ``n_inner`` says otherwise."""
    hidden, heads = config.int("n_embd"), config.int("n_head")
    kv_heads = config.optional_int("n_head_kv", default=None) or heads
    sizes = text.axes(
        hidden=hidden,
        intermediate=config.optional_int("n_inner", default=None) or 4 * hidden,
        vocab=config.int("vocab_size"),
        layers=config.int("n_layer"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=text.whole_heads(config, hidden, heads),
    )
    remote.divided(config, heads, kv_heads, "queries share n_head_kv heads")
    rotary, norm = Rotary(config.int("rotary_dim", default=min(32, sizes.head_dim)), sliced=True), LayerNorm(sizes.hidden)
    layer = ParallelLayer(
        norm,
        remote.fused_heads(sizes, ("Wqkv", "out_proj"), bias=True, out_bias=True, rotary=rotary),
        MLP(
            up=Linear("fc1", sizes.hidden, sizes.intermediate, bias=True, split="column"),
            down=Linear("fc2", sizes.intermediate, sizes.hidden, bias=True, split="row"),
            activation=config.str("activation_function", default="gelu_new"),
        ),
        dropout=config.float("resid_pdrop", default=0.0),
    )
    tied = config.bool("tie_word_embeddings", default=False)
    whole = text.language_model(
        config,
        sizes,
        (Block("h", layer, sizes.num_layers),),
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary, tied=tied, dropout=config.float("embd_pdrop", default=0.0)),
        norm=norm,
        head=Head(Linear("linear", sizes.hidden, sizes.vocab, bias=True, split="column"), tied=tied),
        names=("embd/wte", "lm_head/ln", "lm_head"),
        max_positions=("n_positions",),
    )
    return remote.presumed(whole, "transformers' Phi code with one projection for queries, keys and values")
