"""What LitGPT refuses, and what it decides."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.read import read_run


@pytest.mark.parametrize(
    ("model", "keys", "said"),
    [
        ("mixtral-8x7b", {}, "not transcribed of LitGPT's"),
        ("gemma-2-9b", {}, "not transcribed of LitGPT's"),
        ("llama-2-7b", {"engine": "deepspeed", "zero": 2, "gpus": 8}, "use engine ddp, fsdp1 or fsdp2"),
        ("llama-2-7b", {"loss": "fused_linear"}, "LitGPT has no fused_linear loss"),
        ("llama-2-7b", {"attention": "eager"}, "one fused kernel"),
        ("llama-2-7b", {"task": "inference"}, "task train"),
        ("llama-2-7b", {"recompute": "selective"}, "use none or full"),
        ("llama-2-7b", {"autocast": "bfloat16"}, "autocast: not known of LitGPT's modules"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(model: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(read_run(model, code="litgpt", **keys))


def test_parts_of_a_fused_projection_are_adapted_with_a_list_of_their_columns() -> None:
    """Pythia 1B: 16 layers of width 2048, angles of a quarter of heads of 256 for 512 positions."""
    job = resolve(read_run("pythia-1b", code="litgpt", seq_len=512, lora={"r": 8, "target_modules": ["q_proj", "v_proj"]}))
    assert sum(w.num_params * n for path, w, n in job.model.weights() if "lora" in path) == 16 * 2 * 8 * (2048 + 2048)
    assert job.model.buffer_bytes == 2 * 4 * 64 * 512 + 16 * 8 * 2 * 2048
