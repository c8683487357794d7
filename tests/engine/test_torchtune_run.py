"""What torchtune refuses, and what it decides."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.resolve import resolve
from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.units import gib


@pytest.mark.parametrize(
    ("model", "keys", "said"),
    [
        ("gpt2", {}, "torchtune's models"),
        ("llama-3.1-8b", {"engine": "fsdp1", "gpus": 8}, "use engine fsdp2"),
        ("llama-3.1-8b", {"engine": "ddp", "gpus": 2}, "use engine fsdp2"),
        ("llama-3.1-8b", {"attention": "eager"}, "one fused kernel"),
        ("llama-3.1-8b", {"engine": "fsdp2", "tp": 2, "gpus": 8}, "data parallelism alone"),
        ("llama-3.1-8b", {"loss": "fused_linear"}, "torchtune has no fused_linear loss"),
        ("llama-3.1-8b", {"task": "inference"}, "task train"),
        ("llama-3.1-8b", {"autocast": "bfloat16"}, "autocast: torchtune has no such thing"),
        ("gemma-2-9b", {"packing": True}, "takes no masks of packed samples"),
        ("gemma-2-9b", {"torch_compile": True}, "is not known"),
        ("llama-2-7b", {"seq_len": 8192}, "4096 positions, not 8192"),
        ("llama-3.1-8b", {"lora": {"r": 8, "target_modules": ["q_proj"], "dtype": "float32"}}, "holds adapters in the dtype of the model"),
    ],
)
def test_what_torchtune_does_not_run_is_refused_in_one_line(model: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        resolve(read_run(model, code="torchtune", **keys))


def test_its_loss_is_nobody_elses() -> None:
    with pytest.raises(InputError, match="linear_cross_entropy is torchtune's"):
        resolve(read_run("llama-3.1-8b", loss="linear_cross_entropy"))


@pytest.mark.parametrize(("model", "positions", "adapted"), [("llama-3-8b", 8192, 32), ("llama-3.1-8b", 131072, 1)])
def test_with_adapters_each_layer_has_a_table_of_angles_but_in_later_llamas(model: str, positions: int, adapted: int) -> None:
    """Of all positions that the model may have, in fp32: 64 MiB of Llama 3.1 8B."""
    table = positions * 64 * 2 * 4 + 64 * 4
    assert resolve(read_run(model, code="torchtune", seq_len=4096)).model.buffer_bytes == table
    job = resolve(read_run(model, code="torchtune", seq_len=4096, lora={"r": 8, "target_modules": ["q_proj", "v_proj"]}))
    assert (job.model.buffer_bytes, job.run.lora and job.run.lora.dtype) == (adapted * table, "bfloat16")


def test_fused_projections_are_apart() -> None:
    """Phi 3's parts can be adapted one by one; the count of the base is the same."""
    job = resolve(read_run("phi-3-mini", code="torchtune", seq_len=512, lora={"r": 8, "target_modules": ["q_proj", "up_proj"]}))
    base = resolve(read_run("phi-3-mini", seq_len=512)).model.num_params
    assert job.model.num_params - base == 32 * 8 * (3072 + 3072 + 3072 + 8192)


def test_what_its_releases_keep_beside_is_said() -> None:
    """Two bytes of each number that Llama 3.1 8B's 65 norms give, where nothing is made again and the weights of the norms are trained."""
    full = {"code": "torchtune", "micro_batch": 2, "seq_len": 4096, "loss": "chunked_output"}
    (note,) = resolve(read_run("llama-3.1-8b", **full)).notes
    assert note.endswith("4.06 GiB more")
    for other in ({"recompute": "full"}, {"loss": "linear_cross_entropy"}, {"lora": {"r": 8, "target_modules": ["q_proj"]}}):
        assert resolve(read_run("llama-3.1-8b", **(full | other))).notes == ()
    (note,) = resolve(read_run("qwen3-8b", **full)).notes
    assert note.endswith(f"{gib(2 * 8192 * (36 * (2 * 4096 + (2 * 32 + 8) * 128) + 4096))} more")
