"""T5: what its files leave out, what its heads are, and two stacks that run one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import ModelError
from memcalc.models import families
from memcalc.models.config import Config
from memcalc.specs.model import ModelSpec
from tests.models.families.sizes import build, instants

SMALL: dict[str, Any] = {
    "model_type": "t5",
    "d_ff": 2048,
    "d_kv": 64,
    "d_model": 512,
    "dropout_rate": 0.1,
    "feed_forward_proj": "relu",
    "num_heads": 8,
    "num_layers": 6,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": True,
    "vocab_size": 32128,
}
"""T5-small."""


def test_published_counts() -> None:
    """60.5 million, and 77.0 million of Flan-T5-small, whose network is gated and whose head is its own."""
    assert build(SMALL).num_params == 60_506_624
    flan = {"d_ff": 1024, "num_heads": 6, "num_layers": 8, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    assert build(SMALL, **flan).num_params == 76_961_152


def test_the_stacks_may_differ_in_depth() -> None:
    """Each decoder layer has one more attention and norm."""
    spec, deeper = build(SMALL), build(SMALL, num_decoder_layers=7)
    attention, network = 4 * 512 * 512, 2 * 512 * 2048
    assert deeper.num_params - spec.num_params == 2 * attention + network + 3 * 512
    assert (spec.num_layers, deeper.num_layers) == (12, 13)


def test_the_first_layer_of_each_stack_has_the_table_of_distances() -> None:
    tables = [(path, copies) for path, _, copies in build(SMALL).weights() if "relative_attention_bias" in path]
    assert tables == [(f"{stack}/attention/relative_attention_bias/weight", 1) for stack in ("encoder", "decoder")]


@pytest.mark.parametrize("architecture", ["T5WithLMHeadModel", "T5ForConditionalGeneration"])
def test_a_stripped_file_is_refused_by_the_size_that_it_leaves_out(architecture: str) -> None:
    """Heads of 11B are 128 wide though 1024 over 128 is 8: nothing says so but ``d_kv``."""
    data = {"architectures": [architecture], "d_ff": 65536, "d_model": 1024, "num_heads": 128, "num_layers": 24, "vocab_size": 32128}
    model_type = families.infer_model_type(data, where="config.json")
    assert model_type == "t5"
    with pytest.raises(ModelError, match="leaves out d_kv"):
        families.family(model_type).spec(Config(data, where="config.json", model_type=model_type))


def test_a_network_is_an_activation_or_a_gated_one() -> None:
    with pytest.raises(ModelError, match="feed_forward_proj is 'open-gelu'"):
        build(SMALL, feed_forward_proj="open-gelu")


def layers(spec: ModelSpec) -> int:
    """Repetitions of all layers."""
    return sum(block.repeat for block in spec.blocks if block.role == "layer")


def test_gradients_of_what_layers_share_are_summed() -> None:
    """At the end of a step nothing is left but weights, gradients, states and the batch, however many layers sent a gradient."""
    small = {"d_model": 16, "d_ff": 24, "d_kv": 4, "num_heads": 2, "vocab_size": 30, "dropout_rate": 0.0}
    left = []
    for depth in (1, 2, 7):
        spec = build(SMALL, **small, num_layers=depth)
        assert layers(spec) == 2 * depth
        found = instants(spec, seq_len=40)
        left.append(found["optimizer_step"] - found["start"] - 4 * spec.num_params)
    assert len(set(left)) == 1
