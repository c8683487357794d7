"""What each card of a device map holds, and what the step of one card takes of it."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.device_map import RETURNED
from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run


def mapped(model: str = "llama-3.1-8b", **keys: Any) -> Any:
    return estimate(read_run(model, **{"task": "inference", "device_map": "auto", "seq_len": 1024, **keys}))


def at(answer: Any, name: str, *paths: str) -> list[int]:
    """Bytes of each kind of rank at an instant, under some paths."""
    found = [instant for rank in answer.ranks for instant in rank.instants if instant.name == name]
    return [sum(term.bytes for term in instant.terms if term.path.startswith(paths)) for instant in found]


STATES = ("weights", "gradients", "optimizer")


def test_cards_share_what_one_would_hold() -> None:
    whole = estimate(read_run("llama-3.1-8b", task="inference", seq_len=1024))
    found = mapped(gpu="12GiB", gpus=2)
    for name in ("load", "decode"):
        held = [sum(t.bytes for t in i.terms if t.path.startswith(("weights", "kv_cache"))) for r in found.ranks for i in r.instants if i.name == name]
        assert sum(held) == sum(t.bytes for t in whole.instant(name).terms if t.path.startswith(("weights", "kv_cache")))
    assert [rank.rank for rank in found.ranks] == [{"device": 0}, {"device": 1}]
    assert "16 layers on card 0, 16 layers on card 1" in found.notes[-1]


def test_layers_on_the_host_run_on_the_first_card() -> None:
    """Their weights come one by one, the largest is the head's; their keys and values are on the card."""
    whole = estimate(read_run("llama-3.1-8b", task="inference", seq_len=1024))
    found = mapped(gpu="12GiB")
    terms = {term.path: term.bytes for term in found.instant("prefill").terms}
    assert terms["weights/from the host"] == 128_256 * 4096 * 2
    assert found.host_bytes + found.instant("load").allocated_bytes == whole.instant("load").allocated_bytes
    caches = [sum(t.bytes for t in answer.instant("decode").terms if t.path.startswith("kv_cache")) for answer in (found, whole)]
    assert caches[0] == caches[1]


def test_a_trained_model_is_spread_whole() -> None:
    """Cards hold together what one would; at its peak, each at most what the one holds there of its share, and the logits that are returned to the first."""
    keys: dict[str, Any] = {"seq_len": 512, "recompute": "full", "optimizer": "adamw_torch_fused"}
    whole, found = estimate(read_run("llama-3.1-8b", **keys)), mapped(gpus=2, task="train", **keys)
    assert [rank.rank for rank in found.ranks] == [{"device": 1}, {"device": 0}]
    for name in ("start", "optimizer_step"):
        assert sum(at(found, name, *STATES)) == sum(at(whole, name, *STATES))
    moving = at(found, "backward_peak", "activations", "gradients")
    assert max(moving) < sum(at(whole, "backward_peak", "activations", "gradients"))
    assert at(found, "forward_peak", RETURNED) == [0, 512 * 128_256 * 2]


def test_a_spread_model_is_evaluated_card_by_card() -> None:
    """The head's card makes the logits, the first keeps what metrics are made of."""
    keys: dict[str, Any] = {"task": "train", "seq_len": 512, "gpus": 2}
    alone = mapped(**keys, evaluation={"micro_batch": 4})
    kept = mapped(**keys, evaluation={"micro_batch": 4, "prediction_loss_only": False, "samples": 4})
    labels, loss = 4 * (512 + 513) * 8, 8
    assert at(alone, "evaluation", "activations/lm_head")[0] == 4 * 512 * 128_256 * (2 + 4 + 4) + labels + loss
    more = [b - a for a, b in zip(at(alone, "evaluation", ""), at(kept, "evaluation", ""), strict=True)]
    assert more[0] == 0 < more[1]


def test_a_quantised_base_and_its_adapters_are_spread() -> None:
    keys: dict[str, Any] = {"quantization": "nf4", "lora": {"r": 8, "target_modules": "all-linear"}, "seq_len": 512}
    whole, found = estimate(read_run("llama-3.1-8b", **keys)), mapped(gpus=2, task="train", **keys)
    assert sum(at(found, "start", *STATES)) == sum(at(whole, "start", *STATES))


def test_each_card_grows_the_caches_of_its_layers() -> None:
    """The most is alive where the head makes logits, or where a layer's cache is appended to."""
    whole, found = estimate(read_run("llama-3.1-8b", task="inference", seq_len=1024, new_tokens=100)), mapped(gpus=2, new_tokens=100)
    paths = ("kv_cache/layers", "kv_cache/new tokens")
    assert sum(at(found, "generate", *paths)) == sum(at(whole, "generate", *paths)) == 1123 * 32 * 2 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tp": 2, "gpus": 2}, "one process"),
        ({"assistant_model": "llama-3.2-1b", "new_tokens": 4}, "assistant"),
        ({"max_memory": {"card": "1GiB"}}, "no place"),
        ({"device_map": None, "max_memory": {"0": "1GiB"}}, "give device_map"),
        ({"task": "train", "engine": "fsdp2"}, "one process"),
        ({"task": "train", "checkpoint_save": "full"}, "saving"),
        ({"task": "train", "device_map": None, "low_cpu_mem_usage": False}, "task inference"),
    ],
)
def test_what_cannot_be(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mapped(**{"gpu": "12GiB", **keys})
