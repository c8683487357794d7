"""OLMo 3: OLMo 2 with windows in three layers of four.

Source: transformers, models/olmo3/modeling_olmo3.py.
"""

from __future__ import annotations

from memcalc.components import Embedding, RMSNorm, Rotary
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.models.families.olmo2 import olmo_layer
from memcalc.specs.model import ModelSpec

MODEL_TYPES = ("olmo3",)
ARCHITECTURES = {"Olmo3ForCausalLM": "olmo3"}


def spec(config: Config) -> ModelSpec:
    """Layers with windows turn by angles of their own."""
    sizes = decoder.read_sizes(config)
    whole, local = Rotary(sizes.head_dim, precision="angles"), Rotary(sizes.head_dim, precision="angles", name="local")
    kinds = text.layer_windows(config, sizes.num_layers, pattern=4, window=config.optional_int("sliding_window", default=4096))
    layers = decoder.layer_blocks(kinds, lambda window: olmo_layer(config, sizes, whole if window is None else local, window=window))
    used = (whole if None in kinds else None, local if any(kinds) else None)
    tied = config.bool("tie_word_embeddings", default=False)
    return text.language_model(
        config,
        sizes,
        layers,
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=used[0], local_rotary=used[1], tied=tied),
        norm=RMSNorm(sizes.hidden, "fp32_scale"),
    )
