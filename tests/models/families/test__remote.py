"""Models whose code comes with them: counts by hand over random sizes, what a run takes for granted, files that leave out what matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memcalc.engine.estimate import estimate
from memcalc.errors import ModelError
from memcalc.models.read import read_model
from memcalc.specs.run import Run
from tests.models.families.sizes import build

few = settings(max_examples=20)

SIZES = st.fixed_dictionaries({
    "heads": st.integers(1, 4),
    "kv": st.integers(1, 3),
    "dim": st.integers(1, 4).map(lambda n: 4 * n),
    "inner": st.integers(1, 40),
    "layers": st.integers(1, 3),
    "vocab": st.integers(1, 90),
})  # fmt: skip


def llama(hidden: int, queries: int, keys: int, inner: int, layers: int, vocab: int, *, bias: int = 0) -> int:  # noqa: PLR0917
    """Pre-norm layers with grouped-query attention and a gated network, a table, a head of its own; `bias` elements more in each layer."""
    layer = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * inner + 2 * hidden + bias
    return 2 * vocab * hidden + layers * layer + hidden


@given(s=SIZES)
@few
def test_qwen_halves_its_intermediate_size(s: dict[str, int]) -> None:
    """Gate and up have half of it each; heads have a width of their own, and the fused projection a bias."""
    hidden, heads = 16, s["heads"] * s["dim"]
    config = {"model_type": "qwen", "hidden_size": hidden, "intermediate_size": 2 * s["inner"], "num_attention_heads": s["heads"], "kv_channels": s["dim"]}
    config |= {"num_hidden_layers": s["layers"], "vocab_size": s["vocab"], "tie_word_embeddings": False}
    assert build(config).num_params == llama(hidden, heads, heads, s["inner"], s["layers"], s["vocab"], bias=3 * heads)


@given(s=SIZES, short=st.booleans())
@few
def test_baichuan_is_llama_with_one_projection(s: dict[str, int], *, short: bool) -> None:
    """The 13B models, whose files say the length otherwise, have ALiBi positions: the same count, and no angles."""
    hidden = s["heads"] * s["dim"]
    config = {"model_type": "baichuan", "hidden_size": hidden, "intermediate_size": s["inner"], "num_attention_heads": s["heads"]}
    config |= {"num_hidden_layers": s["layers"], "vocab_size": s["vocab"], "tie_word_embeddings": False} | {
        "max_position_embeddings" if short else "model_max_length": 64
    }
    spec = build(config)
    assert spec.num_params == llama(hidden, hidden, hidden, s["inner"], s["layers"], s["vocab"])
    assert bool(spec.buffer_bytes) is short


@given(s=SIZES)
@few
def test_internlm2_shares_keys_and_values(s: dict[str, int]) -> None:
    heads, kv = s["heads"] * s["kv"], s["kv"]
    hidden = heads * s["dim"]
    config = {"model_type": "internlm2", "hidden_size": hidden, "intermediate_size": s["inner"], "num_attention_heads": heads, "num_key_value_heads": kv}
    config |= {"num_hidden_layers": s["layers"], "vocab_size": s["vocab"], "bias": False, "tie_word_embeddings": False}
    assert build(config).num_params == llama(hidden, hidden, kv * s["dim"], s["inner"], s["layers"], s["vocab"])


@given(s=SIZES, bias=st.booleans())
@few
def test_chatglm_has_a_bias_on_queries_keys_and_values(s: dict[str, int], *, bias: bool) -> None:
    heads, keys = s["heads"] * s["kv"], s["kv"] * s["dim"]
    queries, hidden = heads * s["dim"], 24
    config = {"model_type": "chatglm", "hidden_size": hidden, "ffn_hidden_size": s["inner"], "num_attention_heads": heads, "kv_channels": s["dim"]}
    config |= {"num_layers": s["layers"], "padded_vocab_size": s["vocab"], "multi_query_attention": True, "multi_query_group_num": s["kv"], "rmsnorm": True}
    config |= {"add_bias_linear": False, "add_qkv_bias": bias, "post_layer_norm": True, "seq_length": 64}
    more = bias * (queries + 2 * keys)
    assert build(config).num_params == llama(hidden, queries, keys, s["inner"], s["layers"], s["vocab"], bias=more)


@given(s=SIZES)
@few
def test_the_first_phi_has_biases_everywhere(s: dict[str, int]) -> None:
    h = s["heads"] * s["dim"]
    config = {"model_type": "phi-msft", "n_embd": h, "n_head": s["heads"], "n_layer": s["layers"], "vocab_size": s["vocab"], "n_positions": 64}
    layer = (3 * h * h + 3 * h) + (h * h + h) + (4 * h * h + 4 * h) + (4 * h * h + h) + 2 * h
    assert build(config).num_params == 2 * s["vocab"] * h + s["vocab"] + s["layers"] * layer + 2 * h


@given(s=SIZES, mult=st.sampled_from((0.5, 1.0, 2.625, 5.25)))
@few
def test_a_searched_layer_has_what_its_block_says(s: dict[str, int], mult: float) -> None:
    """A network as wide as its multiple says, rounded up to 256 (nemotron-nas); no attention, or no network, where the block has none."""
    heads = s["heads"] * 2
    h = heads * s["dim"]
    blocks: list[dict[str, Any]] = [
        {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": mult}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": mult}},
        {"attention": {"n_heads_in_group": 2}, "ffn": {"no_op": True}},
    ]
    config = {"model_type": "nemotron-nas", "hidden_size": h, "num_attention_heads": heads, "num_hidden_layers": 3, "vocab_size": s["vocab"]}
    config |= {"block_configs": blocks, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
    inner = int(2 * mult * h / 3)
    inner += -inner % 256
    attention, network = h * h + 2 * h * (heads // 2) * s["dim"] + h * h + h, 3 * h * inner + h
    assert build(config).num_params == 2 * s["vocab"] * h + h + 2 * attention + 2 * network


LLAMA: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ({"architectures": ["LlamaForCausalLM"], **LLAMA}, "num_key_value_heads"),
        ({"architectures": ["FalconForCausalLM"], "hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100}, "multi_query"),
        ({"architectures": ["T5ForConditionalGeneration"], "d_model": 64, "d_ff": 128, "num_heads": 4, "num_layers": 2, "vocab_size": 100}, "d_kv"),
        ({"model_type": "qwen", **LLAMA}, "kv_channels"),
        ({"model_type": "internlm2", **LLAMA}, "num_key_value_heads"),
        ({"model_type": "nemotron-nas", **LLAMA}, "block_configs"),
        ({"model_type": "chatglm", "hidden_size": 64, "num_layers": 2, "num_attention_heads": 4}, "multi_query_attention"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_leaves_out_what_matters_is_refused_in_one_line(tmp_path: Path, config: dict[str, Any], missing: str) -> None:
    """Nothing is guessed from a ratio, or filled with another model's number."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=f"leaves out {missing}; ") as caught:
        read_model(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_what_a_run_takes_for_granted_is_said(tmp_path: Path) -> None:
    """Its code is not read: it runs as the code of transformers that it is closest to."""
    config = {"model_type": "internlm2", **LLAMA, "num_key_value_heads": 2, "bias": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    answer = estimate(Run.model_validate({"model": str(tmp_path), "seq_len": 32}))
    assert any("the code that comes with internlm2 models runs as transformers' Llama code" in text for text in answer.assumptions)
