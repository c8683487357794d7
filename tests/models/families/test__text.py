"""The dense text families: laws over random small configurations of each, published counts, and files that do not determine a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcalc.errors import ModelError
from memcalc.models.read import read_model
from tests.models.families.dense import ENCODERS, FAMILIES, GROUPED, configs
from tests.models.families.sizes import build, check_shapes, instants

each_family = pytest.mark.parametrize("model_type", FAMILIES)
few = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])


@each_family
@given(data=st.data())
@few
def test_the_count_is_the_sum_over_the_shapes(model_type: str, data: st.DataObject) -> None:
    check_shapes(build(data.draw(configs(model_type))))


@each_family
@given(data=st.data())
@few
def test_tying_removes_one_table(model_type: str, data: st.DataObject) -> None:
    """And in BERT and its relatives the bias that nothing uses when the head has its own."""
    config = data.draw(configs(model_type))
    untied, tied = build(config, tie_word_embeddings=False), build(config, tie_word_embeddings=True)
    width = config.get("embedding_size", config.get("word_embed_proj_dim", untied.hidden_size))
    loose = config["vocab_size"] if model_type in ("bert", "deberta-v2", "mpnet", "roberta") else 0
    assert untied.num_params - tied.num_params == config["vocab_size"] * width + loose


@pytest.mark.parametrize("model_type", GROUPED)
@given(data=st.data())
@few
def test_as_many_kv_heads_as_heads_is_multi_head_attention(model_type: str, data: st.DataObject) -> None:
    """Keys, values and queries are as wide as each other, and no fewer parameters or bytes are counted than with fewer KV heads."""
    config = data.draw(configs(model_type))
    spec, whole = build(config), build(config, num_key_value_heads=config["num_attention_heads"])
    assert whole.num_kv_heads == whole.num_heads
    assert whole.num_params >= spec.num_params
    shapes = {path.rsplit("/", 2)[-2]: weight.shape[0].size for path, weight, _ in whole.weights() if path.endswith("/weight")}
    if "k_proj" in shapes:
        assert shapes["k_proj"] == shapes["v_proj"] == shapes["q_proj"]
    else:
        assert shapes["qkv_proj"] == 3 * whole.num_heads * whole.head_dim


@each_family
@given(data=st.data())
@few
def test_more_tokens_never_take_less(model_type: str, data: st.DataObject) -> None:
    """At every instant, whatever the attention; a window that is reached on the way adds a mask."""
    spec = build(data.draw(configs(model_type)))
    attention, shorter = data.draw(st.sampled_from(("sdpa", "eager"))), data.draw(st.integers(1, 60))
    before, after = (instants(spec, seq_len=n, attention=attention) for n in (shorter, shorter + data.draw(st.integers(1, 3))))
    assert {name: (before[name], after[name]) for name in before if after[name] < before[name]} == {}


@pytest.mark.torch
@each_family
@given(data=st.data())
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
def test_transformers_counts_the_same(model_type: str, data: st.DataObject) -> None:
    config = data.draw(configs(model_type))
    assert build(config).num_params == counted(config)


def counted(data: dict[str, Any]) -> int:
    """What summing ``numel`` over transformers' own model gives."""
    import torch
    import transformers

    auto = transformers.AutoModelForMaskedLM if data["model_type"] in ENCODERS else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(transformers.CONFIG_MAPPING[data["model_type"]].from_dict(dict(data)))
    return sum(parameter.numel() for parameter in model.parameters())


COUNTS = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "distilgpt2": 81_912_576,
    "gpt-neo-1.3b": 1_315_575_808,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-6.9b": 6_857_302_016,
    "opt-350m": 331_196_416,
    "opt-66b": 65_719_701_504,
    "bloom-176b": 176_247_271_424,
    "falcon-7b": 6_921_720_704,
    "starcoder-15b": 15_517_456_384,
    "starcoder2-7b": 7_173_923_840,
    "phi-2": 2_779_683_840,
    "phi-3.5-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "gemma-2b": 2_506_172_416,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "olmo-7b": 6_888_095_744,
    "olmo-2-7b": 7_298_617_344,
    "aya-23-8b": 8_028_033_024,
    "command-r": 34_980_831_232,
    "stablelm-2-1.6b": 1_644_515_328,
    "granite-3-8b": 8_170_848_256,
    "glm-4-9b": 9_399_951_360,
    "bert-base-uncased": 109_514_298,
    "roberta-base": 124_697_433,
    "xlm-roberta-large": 560_142_482,
}
"""By name in the catalogue: numel summed over the model's own parameters, a tied table once."""

COPY: dict[str, Any] = {"architectures": ["RWForCausalLM"], "hidden_size": 4544, "n_head": 71, "n_layer": 32, "vocab_size": 65024}
"""What a lossy copy keeps of Falcon 7B's file."""


@pytest.mark.accuracy
@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_catalogue_models_have_their_published_number_of_parameters(name: str, count: int) -> None:
    assert read_model(name).num_params == count


@pytest.mark.parametrize(("name", "length"), [("roberta-base", 512), ("xlm-roberta-large", 512), ("bert-base-uncased", 512), ("opt-125m", 2048)])
def test_the_longest_sequence_leaves_out_positions_that_stand_for_no_token(name: str, length: int) -> None:
    assert read_model(name).max_position_embeddings == length


def test_a_copy_without_the_keys_that_tell_falcons_apart_is_refused(tmp_path: Path) -> None:
    """7B, 40B and RW have the same class name; a file of the model's own says which, or takes its class's defaults."""
    tmp_path.joinpath("config.json").write_text(json.dumps(COPY))
    with pytest.raises(ModelError, match="leaves out multi_query; a file without model_type"):
        read_model(str(tmp_path))
    assert build({**COPY, "model_type": "falcon"}).num_params == COUNTS["falcon-7b"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "gpt2", "n_embd": 10, "n_head": 3, "n_layer": 1, "vocab_size": 5, "n_positions": 8}, "hidden size 10 is not a multiple of the 3"),
        (
            {"model_type": "gpt2", "n_embd": 12, "n_head": 3, "n_layer": 1, "vocab_size": 5, "add_cross_attention": True},
            "add_cross_attention true",
        ),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder true is not known"),
        ({"model_type": "codegen", "n_embd": 12, "n_head": 6, "n_layer": 1, "vocab_size": 5}, "n_head 6 is not a multiple of 4"),
    ],
    ids=["heads", "cross-attention", "decoder", "blocks"],
)
def test_what_a_family_cannot_run_is_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        build(config)


def test_a_partial_head_of_an_odd_number_of_elements_is_refused() -> None:
    """Rotary positions turn pairs."""
    config = {
        "model_type": "phi", "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 8, "num_hidden_layers": 1,
        "vocab_size": 5, "partial_rotary_factor": 0.4,
    }  # fmt: skip
    with pytest.raises(ModelError, match="turns 25 of the 64 elements of a head"):
        build(config)
