"""RWKV 4 (Peng et al. 2023): time mixing and channel mixing in turn; counted, not run.

Source: transformers, models/rwkv/modeling_rwkv.py.
"""

from __future__ import annotations

from memcalc.components import LayerNorm
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _counted as counted
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, ModelSpec, Weight

MODEL_TYPES = ("rwkv",)
ARCHITECTURES = {"RwkvForCausalLM": "rwkv"}


def spec(config: Config) -> ModelSpec:
    """The first layer has one more norm, on the embeddings."""
    hidden = Axis("hidden_size", config.int("hidden_size"))
    inner = Axis("attention_hidden_size", config.optional_int("attention_hidden_size", default=None) or hidden.size)
    wide = Axis("intermediate_size", config.optional_int("intermediate_size", default=None) or 4 * hidden.size)
    norm, one, count = LayerNorm(hidden), Axis("1", 1), config.int("num_hidden_layers")

    def mixes(*names: str) -> tuple[Weight, ...]:
        return tuple(Weight(f"time_mix_{name}", (one, one, hidden)) for name in names)

    time = Parts(
        (*counted.linears(hidden, inner, "key", "value", "receptance"), *counted.linears(inner, hidden, "output")),
        (*counted.vectors(inner, "time_decay", "time_first"), *mixes("key", "value", "receptance")),
    )
    channels = (*counted.linears(hidden, wide, "key"), *counted.linears(hidden, hidden, "receptance"), *counted.linears(wide, hidden, "value"))
    parts = (("ln1", norm), ("ln2", norm), ("attention", time), ("feed_forward", Parts(channels, mixes("key", "receptance"))))
    first = Block("blocks", Parts((("pre_ln", norm), *parts)))
    return counted.model(
        config,
        text.axes(hidden=hidden.size, intermediate=wide.size, vocab=config.int("vocab_size"), layers=count, heads=1),
        (first, Block("blocks", Parts(parts), count - 1)) if count > 1 else (first,),
        what="time mixing, a kernel of its own",
        norm=norm,
        names=("embeddings", "ln_out", "head"),
        max_positions=("context_length",),
    )
