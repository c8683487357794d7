"""Sizes among Megatron's flags."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files

GPT = "pretrain_gpt.py --num-layers 12 --hidden-size 512 --num-attention-heads 8 --max-position-embeddings 1024 --micro-batch-size 4"


def shape(flags: str) -> dict[str, Any]:
    found = import_files([], command=["torchrun", "--nproc-per-node", "8", *shlex.split(f"{GPT} {flags}")])
    made: dict[str, Any] = json.loads(next(origin.value for origin in found.origins if origin.key == "model"))
    return made


def test_what_is_not_said_is_left_to_megatron() -> None:
    sizes = {"num_layers": 12, "hidden_size": 512, "num_attention_heads": 8, "max_position_embeddings": 1024}
    assert shape("--vocab-size 32000") == {"model_type": "megatron_gpt", "vocab_size": 32_000} | sizes


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("", "vocab_size", 50_257),
        ("--tokenizer-type TikTokenizer", "vocab_size", 131_072),
        ("--tokenizer-type NullTokenizer --vocab-size 131072", "vocab_size", 131_073),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model qwen3-8b", "tokenizer_model", "qwen3-8b"),
        ("--vocab-size 9 --disable-bias-linear", "add_bias_linear", False),
        ("--vocab-size 9 --use-rotary-position-embeddings", "position_embedding_type", "rope"),
        ("--vocab-size 9 --normalization RMSNorm", "normalization", "RMSNorm"),
        ("--vocab-size 9 --num-query-groups 2 --group-query-attention", "num_query_groups", 2),
        ("--vocab-size 9 --num-experts 8", "moe_layers", [1] * 12),
        ("--vocab-size 9 --num-experts 8 --moe-layer-freq 3", "moe_layers", [1, 0, 0] * 4),
        ("--vocab-size 9 --num-experts 8 --moe-layer-freq '([0]*1+[1]*2)*4'", "moe_layers", [0, 1, 1] * 4),
        ("--vocab-size 9 --num-experts 8 --moe-layer-freq '[0]*3+[1]*9'", "moe_layers", [0] * 3 + [1] * 9),
    ],
)
def test_a_flag_is_a_key_of_the_model(flags: str, key: str, value: Any) -> None:
    assert shape(flags)[key] == value


@pytest.mark.parametrize(("flags", "together"), [("", False), ("--moe-grouped-gemm", True)])
def test_products_of_experts_run_one_by_one_unless_said(flags: str, together: bool) -> None:
    found = import_files([], command=shlex.split(f"{GPT} --vocab-size 9 --num-experts 8 {flags}"))
    assert found.layer.data["sharding"]["moe_grouped_gemm"] is together


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--tokenizer-type GPTSentencePieceTokenizer --tokenizer-model x.model", "give vocab_size, or --model"),
        ("--vocab-size 9 --moe-layer-freq 'open(1)'", "accepted: a number, or a list"),
        ("--vocab-size 9 --moe-layer-freq '([0]*99999+[1])*99999'", "accepted: a number, or a list"),
        ("--vocab-size 9 --normalization groupnorm", "groupnorm"),
        ("--vocab-size 9 --hidden-size wide", "hidden_size"),
    ],
)
def test_what_is_no_size_is_refused(flags: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shape(flags)
