"""Products in fp8: what is saved in the place of inputs and weights."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run

LAYERS, HIDDEN, WIDE, TOKENS = 32, 4096, 11008, 2048
MATRICES = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * WIDE)


def run(**keys: Any) -> Estimate:
    """Llama 7B on 2048 tokens."""
    return estimate(Run.model_validate({"model": "llama-7b", "seq_len": TOKENS, **keys}))


def difference(instant: str, kind: str, a: dict[str, Any], b: dict[str, Any]) -> int:
    """Bytes that the terms of a kind have more under `a` than under `b`."""
    found = [sum(t.bytes for t in run(**keys).instant(instant).terms if t.path.startswith(f"{kind}/")) for keys in (a, b)]
    return found[0] - found[1]


def test_megatron_saves_inputs_in_a_byte_and_keeps_copies_of_weights() -> None:
    """Two norms' outputs and the gate's take a byte less an element, attention's one more; matrices two more."""
    bf16 = {"code": "megatron", "sharding": {"zero": 1, "dp": 8}}
    fp8 = {**bf16, "fp8": "te"}
    assert difference("forward_end", "activations", bf16, fp8) == LAYERS * TOKENS * (HIDDEN + WIDE)
    assert difference("start", "weights", fp8, bf16) == 2 * MATRICES
    assert difference("start", "weights", {**fp8, "fp8_params": True}, bf16) == 0


def test_attention_output_is_saved_for_two_that_read_it() -> None:
    """In bf16 by the kernel, and in fp8 by the projection after it."""
    sizes = {t.path: t.bytes for t in run(code="megatron", fp8="te").instant("forward_end").terms}
    assert any(path.endswith("attention output") for path in sizes)
    fp8 = [n for path, n in sizes.items() if "input in fp8, transposed" in path]
    assert sum(fp8) == LAYERS * TOKENS * (3 * HIDDEN + WIDE)


def test_torchao_saves_what_it_saved() -> None:
    """Its copies are there for a moment."""
    amp = {"dtype": "float32", "autocast": "bfloat16"}
    assert difference("forward_end", "activations", {**amp, "fp8": "torchao"}, amp) == 0


def test_names_of_precisions_say_so() -> None:
    """Under Megatron and under autocast."""
    assert run(code="megatron", precision="fp8").instant("start") == run(code="megatron", fp8="te").instant("start")
    assert run(precision="fp8_torchao").peak == run(dtype="float32", autocast="bfloat16", fp8="torchao").peak


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fp8": "torchao", "code": "megatron"}, "fp8: Megatron's products"),
        ({"fp8_params": True}, "fp8_params: weights held in fp8"),
        ({"fp8": "te", "task": "inference"}, "fp8: products in fp8 are known for training"),
        ({"fp8": "te", "lora": {}}, "fp8: products in fp8 with adapters"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], message: str) -> None:
    """In one line."""
    with pytest.raises(InputError) as raised:
        run(**keys)
    assert str(raised.value).startswith(message)
