"""Megatron's roles on their pipelines: who holds what in each phase, by hand, and stages that meet on one card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memcalc.engine.estimate import estimate, walk_ranks
from memcalc.engine.resolve import resolve
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run

AWAY = {"params": "cpu", "optimizer": "cpu", "gradients": "cpu"}
MEGATRON: dict[str, Any] = {
    "code": "megatron", "gpu": "h100-80g", "gpus": 8, "tp": 2, "sp": True, "seq_len": 512, "micro_batch": 1, "grad_accum": 8,
    "rollout": {"engine": "vllm", "cards": "other"}, "use_distributed_optimizer": True,
}  # fmt: skip
LAYER, TABLE, NORM = 44_044_288, 32000 * 2048, 2048  # elements of TinyLlama's parts


def ask(task: str, **keys: Any) -> Estimate:
    return estimate(read_run("tinyllama-1.1b", task=task, **{**MEGATRON, **keys}))


def of_stage(answer: Estimate, pp: int) -> dict[str, dict[str, int]]:
    """Bytes of one stage by phase and path."""
    (rank,) = [rank for rank in answer.ranks if rank.rank["pp"] == pp]
    return {i.name: {t.path: t.bytes for t in i.terms} for i in rank.instants}


def under(terms: dict[str, int], *starts: str) -> int:
    return sum(n for path, n in terms.items() if path.startswith(starts))


def test_a_stage_holds_its_layers_one_end_and_the_states_of_its_part() -> None:
    """11 layers and a table, over tp 2; 2 bytes of weights, 4 of gradients, 12 over the two data-parallel ranks. Padding is below a thousandth."""
    found = of_stage(ask("grpo", pp=2), 1)["advantages"]
    elements = (11 * LAYER + TABLE) // 2 + NORM
    assert under(found, "actor/weights/") == pytest.approx(2 * elements, rel=1e-3)
    assert under(found, "actor/gradients/") == pytest.approx(4 * elements, rel=1e-3)
    assert under(found, "actor/optimizer/") == pytest.approx(12 * elements // 2, rel=1e-3)


def test_what_is_put_away_is_there_when_it_is_needed_and_not_before() -> None:
    """verl with param_offload and optimizer_offload: scoring needs weights alone, a rollout nothing, an update all."""
    found = of_stage(ask("grpo", pp=2, roles={"actor": {"idle": AWAY}, "reference": {"idle": {"params": "cpu"}}}), 1)
    held = {phase: tuple(under(terms, f"actor/{what}/") > 0 for what in ("weights", "gradients", "optimizer")) for phase, terms in found.items()}
    assert held["rollout"] == held["advantages"] == held["reference_log_probs"] == (False, False, False)
    assert held["actor_log_probs"] == held["weight_sync"] == (True, False, False)
    assert held["actor_update"] == (True, True, True)
    assert under(found["reference_log_probs"], "reference/weights/") > 0 == under(found["actor_update"], "reference/weights/")


def test_a_reference_in_the_actors_place_is_the_actors_weights_on_the_card_and_its_own_on_the_host() -> None:
    answer = ask("grpo", pp=2, roles={"reference": {"shares": "storage"}})
    found = of_stage(answer, 1)["reference_log_probs"]
    assert under(found, "reference/weights/") == 0
    (host,) = [t.bytes for rank in answer.ranks if rank.rank["pp"] == 1 for t in rank.host if t.path == "host/reference/weights"]
    assert host == pytest.approx(under(found, "actor/weights/"), rel=1e-3)


def test_stages_of_pipelines_of_several_depths_meet_on_one_card() -> None:
    """A critic in two stages beside an actor in four: the first two stages of the actor stand with the critic's first, which holds its table."""
    answer = ask("ppo", pp=4, roles={"critic": {"sharding": {"pp": 2}}, "reward": None})
    tables = {rank.rank["pp"]: any(t.path.startswith("critic/weights/embed") for t in rank.instants[0].terms) for rank in answer.ranks}
    assert tables == {0: True, 1: True, 2: False, 3: False}
    assert sum(rank.num_ranks for rank in answer.ranks) == 8


def test_a_stage_between_others_holds_another_models_hidden_states_in_flight() -> None:
    """DPO with its reference: three micro-batches in flight on the second of four stages, of two sequences cut by tp 2, in bf16."""
    found = of_stage(ask("dpo", pp=4, rollout={}, recompute="full"), 1)
    assert found["forward_end"]["actor/activations/received hidden_states of another model"] == 3 * 2 * 512 // 2 * 2048 * 2
    alone = of_stage(ask("dpo", pp=4, rollout={}, recompute="full", roles={"reference": {"precomputed": True}}), 1)
    assert not any("another model" in path for terms in alone.values() for path in terms)


def test_arrays_of_sizes_are_as_single_ones() -> None:
    job = resolve(read_run("tinyllama-1.1b", task="grpo", **MEGATRON, pp=2, rl={"framework": "verl"}))
    batch, seq = np.asarray([1, 3]), np.asarray([512, 1024])
    many = walk_ranks(replace(job, micro_batch=batch, seq_len=seq), detailed=False)
    for i in range(2):
        one = walk_ranks(replace(job, micro_batch=int(batch[i]), seq_len=int(seq[i])), detailed=False)
        for k in range(2):
            totals = {name: int(np.broadcast_to(shot.total, 2)[i]) for name, shot in many[k].walk.instants.items()}
            assert totals == {name: shot.total for name, shot in one[k].walk.instants.items()}


@pytest.mark.parametrize(
    ("task", "keys", "message"),
    [
        ("grpo", {"code": "transformers", "sp": False, "pp": 2}, "sharding.pp: task grpo over pipeline stages is known for code megatron"),
        ("grpo", {"rollout": {"engine": "transformers"}}, "rollout.engine: Megatron's modules do not generate here"),
        ("grpo", {"rl": {"entropy": "chunked"}}, "rl.entropy: Megatron's modules find entropies of whole logits"),
        ("grpo", {"loss": "fused_linear"}, "loss: log-probabilities are found by cross_entropy here"),
        ("grpo", {"rl": {"logprob_chunk": 64}}, "rl.logprob_chunk: log-probabilities are found some tokens at a time by NeMo-RL"),
        ("orpo", {"rollout": {}}, "code: task orpo with Megatron's modules is not known"),
        ("grpo", {"roles": {"reward": {"shares": "storage"}}}, "roles.reward.shares: a reference alone takes the actor's place"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(task: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        ask(task, **keys)
    assert str(error.value).startswith(message)
