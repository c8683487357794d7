"""Contrastive training of embedders: against traced steps, and what its matrix of similarities takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.formulas.loss import cached_bytes, similarity_bytes
from memcalc.specs.run import Run

BERT = {"model_type": "bert", "num_attention_heads": 8, "max_position_embeddings": 512, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
DEEP = {**BERT, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 3, "vocab_size": 1000}
WIDE = {**BERT, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 100}
TRACED = [
    (DEEP, {"micro_batch": 8, "seq_len": 64, "contrastive": {"texts": 3}}, 2240272, {"start": 26891668, "forward_end": 94662300, "backward_peak": 96216988}),
    (WIDE, {"micro_batch": 1024, "seq_len": 8, "contrastive": {}}, 72896, {"start": 883028, "forward_end": 66705884, "backward_peak": 75086300}),
]
"""A config.json, keys of a run, parameters, and bytes alive in a traced step of sentence-transformers' loss on transformers' modules."""


@pytest.mark.parametrize(("config", "keys", "num_params", "instants"), TRACED)
def test_a_step_agrees_with_the_trace(config: dict[str, Any], keys: dict[str, Any], num_params: int, instants: dict[str, int], tmp_path: Path) -> None:
    """Columns of texts run one after another, and are counted at once: a layer's temporaries are a little too many."""
    tmp_path.joinpath("config.json").write_text(json.dumps(config))
    answer = estimate(Run.model_validate({"model": str(tmp_path), "dtype": "float32", "attention_mask": True, **keys}))
    assert answer.model.total_params == num_params
    for name, num_bytes in instants.items():
        assert answer.instant(name).allocated_bytes == pytest.approx(num_bytes, rel=0.02 if name == "backward_peak" else 5e-4)


def run(**keys: Any) -> Estimate:
    """BERT base in bf16 on texts of 16 tokens."""
    return estimate(Run.model_validate({"model": "bert-base-uncased", "seq_len": 16, "recompute": "full", **keys}))


def test_the_matrix_grows_with_the_square_of_the_batch() -> None:
    """Log-softmax in fp32 when forward is over."""
    sizes = {n: {t.path: t.bytes for t in run(micro_batch=n, dtype="float32", contrastive={}).instant("forward_end").terms} for n in (512, 1024)}
    found = {n: next(size for path, size in terms.items() if path.endswith("log-softmax")) for n, terms in sizes.items()}
    assert found == {n: similarity_bytes(n, n, copies=1) for n in (512, 1024)}


def test_grad_cache_holds_graphs_of_a_mini_batch_alone() -> None:
    """And embeddings with their gradients of all texts."""
    few, many = (run(micro_batch=n, contrastive={"mini_batch": 32}) for n in (1024, 2048))
    more = many.instant("forward_end").allocated_bytes - few.instant("forward_end").allocated_bytes
    assert more == cached_bytes(2 * 1024, hidden=768)
    whole = run(micro_batch=1024, contrastive={})
    assert whole.most_loaded.allocated_bytes > few.most_loaded.allocated_bytes


def test_candidates_may_be_those_of_all_ranks() -> None:
    """Rows stay."""
    keys: dict[str, Any] = {"micro_batch": 256, "sharding": {"dp": 8}}
    alone, gathered = (run(contrastive={"gather_across_devices": on}, **keys).instant("forward_end").allocated_bytes for on in (False, True))
    assert gathered - alone >= similarity_bytes(256, 7 * 256, copies=1) // 2


@pytest.mark.parametrize("keys", [{"model": "t5-3b"}, {"loss": "chunked"}, {"sharding": {"tp": 2}}])
def test_what_does_not_go_together_is_refused(keys: dict[str, Any]) -> None:
    """In one line."""
    with pytest.raises(InputError, match=r"^contrastive: "):
        run(contrastive={}, **keys)
