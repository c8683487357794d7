"""What to change in a server that does not start."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.report import serving_advice as report
from memcalc.report.style import Style
from memcalc.specs.read import read_run
from memcalc.whatif.serving_advice import ServingAdvice, advise_server, starts


def advised(model: str, **keys: Any) -> ServingAdvice:
    return advise_server(read_run(model, **{"task": "inference", "code": "vllm", "gpu": "h100-80g", **keys}))


@pytest.mark.parametrize(
    ("model", "keys", "name"),
    [
        ("llama-3.1-70b", {"max_model_len": 8192}, "tensor parallelism"),
        ("llama-3.1-8b", {"gpu": "rtx4090-24g"}, "a shorter longest sequence"),
        ("llama-3.1-8b", {"gpu": "16GiB", "max_model_len": 1024}, "tensor parallelism"),
        ("llama-3.1-8b", {"code": "llamacpp", "gpu": "12GiB", "seq_len": 8192}, "more cards"),
        ("llama-3.1-8b", {"code": "sglang", "gpu": "24GiB", "mem_fraction_static": 0.5, "max_model_len": 4096}, "a larger share of the card"),
    ],
)
def test_the_shortest_sequence_starts(model: str, keys: dict[str, Any], name: str) -> None:
    found = advised(model, **keys)
    assert not found.fits
    assert [change.name for change, _ in found.path] == [name]
    assert found.changed is not None
    from memcalc.engine.estimate import estimate

    assert starts(estimate(found.changed))


def test_what_starts_is_left_as_it_is() -> None:
    found = advised("llama-3.1-8b", max_model_len=8192)
    assert (found.fits, found.path) == (True, ())
    fp8 = next(tried for tried in found.changes if tried.change.name == "cache in 8 bits")
    assert found.answer.serving is not None
    assert fp8.sequences == pytest.approx(2 * found.answer.serving.max_concurrency, rel=0.01)


def test_nothing_helps_a_giant_on_a_small_card() -> None:
    found = advised("deepseek-v3", gpu="24GiB")
    assert found.path == ()
    assert "No sequence" in report.conclusion(found)


def test_the_words() -> None:
    found = advised("llama-3.1-70b", max_model_len=8192)
    shown = report.text(found, Style(100))
    assert "does not start: No available memory for the cache blocks" in shown
    assert "Flags: --tp 2 --gpus 2" in shown
    assert report.markdown(found).count("|") > 50
    assert "kv_cache_bytes" in report.comma_separated(found)
    assert '"fits": false' in report.as_json(found)


def test_a_card_must_be_named() -> None:
    with pytest.raises(InputError, match="--gpu"):
        advise_server(read_run("llama-3.1-8b", task="inference", code="llamacpp"))
