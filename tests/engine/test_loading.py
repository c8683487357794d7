"""The instant ``loading``: what stands beside the weights while they come."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run


def loaded(model: str, **keys: Any) -> Estimate:
    return estimate(read_run(model, task="inference", initialize=True, seq_len=64, **keys))


def above(found: Estimate) -> int:
    return found.instant("loading").allocated_bytes - found.instant("load").allocated_bytes


@pytest.mark.parametrize(
    ("model", "keys", "size"),
    [
        ("llama-3.1-8b", {}, 0),
        ("llama-3.1-8b", {"quantization": "nf4"}, 4096 * 14_336 * 2),
        ("mixtral-8x7b", {}, 8 * 2 * 14_336 * 4096 * 2),
        ("gpt-oss-20b", {}, 32 * 5760 * 2880 * 2 + 32 * 5760 * 2880 * 17 // 32),
    ],
    ids=["tensor by tensor", "the largest before it is packed", "one layer's experts before they are stacked", "unpacked experts and what they were"],
)
def test_beside_the_weights(model: str, keys: dict[str, Any], size: int) -> None:
    assert above(loaded(model, **keys)) == size


def test_a_whole_copy_on_the_host_where_the_model_is_built_first() -> None:
    """Beside it the file that is read, of 5 GB at most; by default neither."""
    assert loaded("llama-3.1-8b", low_cpu_mem_usage=False).host_bytes == 2 * 8_030_261_248 + 5 * 10**9
    assert loaded("llama-3.1-8b").host_bytes == 0


def test_training_loads_otherwise() -> None:
    with pytest.raises(InputError, match="task inference"):
        estimate(read_run("llama-3.2-1b", low_cpu_mem_usage=False))
