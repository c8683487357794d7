"""An evaluation between two steps: against traced ones, and what it keeps of logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run
from memcalc.units import GiB

SMALL = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 512}
LLAMA = {"model_type": "llama", "intermediate_size": 688, "num_key_value_heads": 4, **SMALL}
GPT2 = {"model_type": "gpt2", "n_embd": 256, "n_layer": 3, "n_head": 8, "vocab_size": 1000, "n_positions": 512}
TRACED = [
    (LLAMA, {}, 10772136 - 5377664),
    ({**LLAMA, "intermediate_size": 2752, "vocab_size": 100}, {}, 23491200 - 13966976),
    (LLAMA, {"dtype": "float32", "autocast": "bfloat16"}, 21273768 - 10755200),
    (GPT2, {"attention": "eager"}, 12269056 - 5513728),
]
"""A config.json, keys of a run of 4 sequences of 128 tokens, and what a traced forward pass with labels and without a graph took on top of the model."""


@pytest.mark.parametrize(("config", "keys", "more"), TRACED)
def test_a_forward_pass_without_a_graph_agrees_with_the_trace(config: dict[str, Any], keys: dict[str, Any], more: int, tmp_path: Path) -> None:
    """To the byte: dropout is off, and nothing is saved."""
    tmp_path.joinpath("config.json").write_text(json.dumps(config))
    answer = estimate(Run.model_validate({"model": str(tmp_path), "micro_batch": 4, "seq_len": 128, "evaluation": {}, **keys}))
    assert answer.instant("evaluation").allocated_bytes - answer.instant("start").allocated_bytes == more


def pythia(**keys: Any) -> Estimate:
    """Pythia 6.9B on eight cards of 80 GB, fully sharded, under autocast."""
    given = {"sharding": {"engine": "fsdp1", "dp": 8}, "autocast": "bfloat16", "dtype": "float32", "hardware": {"gpu": "a100-80g"}}
    return estimate(Run.model_validate({"model": "pythia-6.9b", "seq_len": 512, **given, **keys}))


def test_kept_logits_stand_twice_when_the_last_are_joined() -> None:
    """2 * 15,011 samples of 512 tokens over the padded vocabulary, in fp32 under autocast."""
    answer = pythia(evaluation={"prediction_loss_only": False, "samples": 15011})
    kept = 15011 * 512 * (answer.instant("evaluation").terms[0].inputs or {}).get("width", 0)
    assert kept == 15011 * 512 * 4
    on_card = sum(t.bytes for t in answer.instant("evaluation").terms if t.path.startswith("evaluation/"))
    assert on_card == pytest.approx(2 * 15011 * 512 * (50432 * 4 + 8), rel=1e-9)
    assert answer.verdict is not None
    assert not answer.verdict.fits


def test_accumulation_steps_send_logits_to_the_host_which_then_runs_out() -> None:
    """Transformers issue 25313: 1.55 TB of logits a process, which no host of 960 GB holds."""
    answer = pythia(evaluation={"prediction_loss_only": False, "samples": 15011, "accumulation_steps": 1})
    assert answer.verdict is not None
    assert answer.verdict.fits
    assert answer.host_bytes == 8 * 15011 * 512 * (50432 * 4 + 8)
    assert 1.5e12 < answer.host_bytes / 8 < 1.6e12


def test_the_loss_alone_costs_less_than_training() -> None:
    """The advice of that report."""
    answer = pythia(evaluation={})
    assert answer.instant("evaluation").allocated_bytes < answer.instant("backward_peak").allocated_bytes
    assert answer.host_bytes < GiB


def test_a_larger_batch_is_evaluated_as_such() -> None:
    """Logits and their copy in fp32 grow with it."""
    small, large = (pythia(evaluation={"micro_batch": n}) for n in (16, 32))
    assert large.instant("evaluation").allocated_bytes - small.instant("evaluation").allocated_bytes > 16 * 512 * 50432 * 8
    assert large.instant("forward_peak").allocated_bytes == small.instant("forward_peak").allocated_bytes


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"evaluation": {"prediction_loss_only": False}}, "evaluation.prediction_loss_only: logits of how many"),
        ({"evaluation": {"samples": 3}}, "evaluation.samples: the loss alone is kept"),
        ({"evaluation": {}, "task": "inference"}, "evaluation: it is an evaluation in the loop"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, Any], message: str) -> None:
    """In one line."""
    with pytest.raises(InputError) as raised:
        estimate(Run.model_validate({"model": "llama-7b", "seq_len": 512, **keys}))
    assert str(raised.value).startswith(message)


def test_a_loss_without_logits_is_for_training_alone(tmp_path: Path) -> None:
    """Liger's models make all logits when they are evaluated."""
    tmp_path.joinpath("config.json").write_text(json.dumps(LLAMA))
    found = [
        estimate(Run.model_validate({"model": str(tmp_path), "seq_len": 128, "evaluation": {}, "loss": loss})) for loss in ("fused_linear", "cross_entropy")
    ]
    assert found[0].instant("evaluation").allocated_bytes == found[1].instant("evaluation").allocated_bytes
