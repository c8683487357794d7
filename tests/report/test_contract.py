"""The JSON that others rely on. Its shape changes only with its schema version."""

from __future__ import annotations

import json
from typing import Any

from memcalc.report.contract import SCHEMA_VERSION, as_dict, as_json
from tests.report.estimates import GiB, estimate

SHAPE: dict[str, Any] = {
    "schema_version": int,
    "model": {"name": str, "model_type": str, "params": {"total": int, "trainable": int, "active": int}},
    "instants": [
        {
            "name": str,
            "rank": {"pp": int},
            "allocated_bytes": int,
            "terms": [{"path": str, "bytes": int, "formula": str, "inputs": dict, "source": str}],
        }
    ],
    "peak": {"instant": str, "rank": {"pp": int}, "allocated_bytes": int, "reserved_bytes": int, "device_bytes": int},
    "host": {"bytes": int},
    "verdict": {"fits": bool, "gpu": str, "capacity_bytes": int, "headroom_bytes": int},
    "assumptions": [str],
    "ignored": [str],
}


def has_shape(value: Any, shape: Any) -> bool:
    """Whether plain data has a shape, no key more and none less."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and set(value) == set(shape) and all(has_shape(value[key], inner) for key, inner in shape.items())
    if isinstance(shape, list):
        return isinstance(value, list) and all(has_shape(item, shape[0]) for item in value)
    return type(value) is shape


def test_the_shape() -> None:
    assert has_shape(json.loads(as_json(estimate())), SHAPE)
    assert SCHEMA_VERSION == 1


def test_no_card_no_verdict() -> None:
    assert as_dict(estimate(capacity=None))["verdict"] is None


def test_terms_sum_to_their_instant() -> None:
    for instant in as_dict(estimate())["instants"]:
        assert sum(term["bytes"] for term in instant["terms"]) == instant["allocated_bytes"]


def test_the_peak_adds_up() -> None:
    data = as_dict(estimate(capacity=20 * GiB))
    peak = data["peak"]
    assert peak["allocated_bytes"] == max(instant["allocated_bytes"] for instant in data["instants"])
    assert (peak["reserved_bytes"], peak["device_bytes"]) == (peak["allocated_bytes"] + GiB // 2, peak["allocated_bytes"] + GiB)
    assert data["verdict"] == {"fits": False, "gpu": "a100-80g", "capacity_bytes": 20 * GiB, "headroom_bytes": 20 * GiB - peak["device_bytes"]}


def test_notes_travel_with_the_assumptions() -> None:
    answer = estimate()
    assert as_dict(answer)["assumptions"] == [*answer.assumptions, *answer.notes]


def test_ranks_on_request() -> None:
    data = as_dict(estimate(kinds=2), ranks=True)
    assert set(data) - set(SHAPE) == {"ranks"}
    assert [rank["rank"] for rank in data["ranks"]] == [{"pp": 0}, {"pp": 1}]
    assert data["ranks"][0]["instants"] == data["instants"]


def test_a_server_has_its_pool_and_its_refusal() -> None:
    """Other answers have neither key."""
    from memcalc.engine.estimate import estimate as answer
    from memcalc.specs.read import read_run

    found = as_dict(answer(read_run("llama-3.1-70b", task="inference", code="vllm", gpu="h100-80g")))
    assert found["serving"]["engine"] == "vllm"
    assert found["serving"]["kv_cache_bytes"] == 0
    assert found["verdict"]["refusal"] == "No available memory for the cache blocks"
    assert "serving" not in as_dict(estimate())
