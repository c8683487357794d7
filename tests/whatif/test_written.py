"""A run in another framework's words: what is read back of them is the same run, with what they leave out beside it."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.whatif.written import written

LLAMA = {"model": "llama-3.2-1b", "seq_len": 512}
MIXED = {"dtype": "float32", "autocast": "bfloat16"}
FSDP2 = {"engine": "fsdp2", "dp": 4, "reduce_dtype": "bfloat16", "fsdp_wrap_ends": True}
FSDP1 = {"engine": "fsdp1", "dp": 2, "reduce_dtype": "bfloat16", "fsdp_sharding_strategy": "NO_SHARD", "fsdp_backward_prefetch": "NO_PREFETCH"}
LORA = {"lora": {"r": 8, "target_modules": ".*mlp.*", "dtype": "float32", "use_dora": True, "modules_to_save": ["lm_head"]}}


@pytest.mark.parametrize(
    ("name", "keys", "beside"),
    [
        ("trainer", {**MIXED, "sharding": FSDP2, "offload": {"params": "cpu", "optimizer": "cpu", "activations": "cpu"}, "recompute": "full"}, ()),
        ("trainer", {**MIXED, "sharding": FSDP1, **LORA}, ()),
        ("trainer", {"dtype": "bfloat16", "sharding": {"dp": 2}, "quantization": "int8", "lora": {"r": 4, "dtype": "bfloat16"}}, ("lora.dtype",)),
        ("trainer", {**MIXED, "sharding": {"dp": 2}, "liger": {"rope": False}}, ()),
        ("trainer", {**MIXED, "sharding": {"dp": 2}, "liger": True, "loss": "cross_entropy"}, ()),
        ("trainer", {**MIXED, "sharding": {"dp": 2}, "loss": "fused_linear"}, ()),
        ("accelerate", {**MIXED, "sharding": {**FSDP2, "reshard_after_forward": False}, "attention": "eager"}, ("attention", "seq_len", "model")),
        ("accelerate", {"dtype": "float16", "sharding": {"dp": 2}}, ("seq_len", "dtype", "model")),
        ("deepspeed", {**MIXED, "sharding": {"engine": "deepspeed", "zero": 2, "dp": 4}, "packing": True}, ("packing", "seq_len", "model")),
        ("vllm", {"task": "inference", "code": "vllm", "hardware": {"gpu": "h100-80g"}, "dtype": "bfloat16", "serving": {"max_num_seqs": 8}}, ()),
    ],
)
def test_what_the_words_leave_out_is_named(name: str, keys: dict[str, Any], beside: tuple[str, ...]) -> None:
    assert written(read_run(LLAMA | keys), name).beside == beside


@pytest.mark.parametrize(
    ("keys", "said"),
    [({"sharding": {"engine": "megatron"}, "lora": {"r": 8}}, "no adapters"), ({"sharding": {"tp": 2, "pp": 2}}, "how many micro-batches")],
)
def test_what_megatron_has_no_words_for_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        written(read_run(LLAMA | {"code": "megatron", **keys}), "megatron")
