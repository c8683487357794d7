"""Tasks that learn from their own answers: traced updates, laws of phases, levers, and what practitioners report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import memcalc
from memcalc.engine.estimate import estimate, walk_ranks
from memcalc.engine.resolve import resolve
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.read import read_run
from memcalc.units import GiB
from memcalc.whatif.advise import advise
from memcalc.whatif.compare import compare
from tests.traced import Case, load_cases

CASES = [case for case in load_cases("rlhf") if case.run["task"] in ("grpo", "ppo")]
PHASES = ("load", "rollout", "actor_log_probs", "reference_log_probs", "values", "rewards", "advantages", "actor_update", "critic_update")


def tiny(task: str, **keys: Any) -> Estimate:
    return estimate(read_run("tinyllama-1.1b", task=task, **{"seq_len": 512, "micro_batch": 2} | keys))


def phases(answer: Estimate) -> dict[str, int]:
    return {instant.name: instant.allocated_bytes for instant in answer.most_loaded.instants}


def under(answer: Estimate, instant: str, start: str) -> int:
    return sum(term.bytes for term in answer.instant(instant).terms if term.path.startswith(start))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_update_is_as_traced(case: Case, tmp_path: Path) -> None:
    """The highest instant of a traced update of GRPO, or of PPO's actor and critic in one, but for the experience, which the traced loops hold in part."""
    answer = case.estimate(tmp_path)
    found = answer.instant("actor_update").allocated_bytes - under(answer, "actor_update", "experience/")
    assert found == pytest.approx(max(case.instants.values()), rel=3e-3)


def test_ppo_goes_through_its_phases_in_order() -> None:
    assert tuple(phases(tiny("ppo"))) == PHASES


def test_ppo_without_critic_and_reward_is_grpo_of_one_answer_each() -> None:
    alone = tiny("ppo", roles={"critic": None, "reward": None}, rl={"kl": "loss"})
    assert phases(alone) == phases(tiny("grpo", rollout={"num_generations": 1}))


def test_no_more_is_scored_at_once_than_a_rollout_has() -> None:
    """TRL's PPO scores 64 sequences at once, of the two that there are."""
    assert phases(tiny("ppo", rl={"score_micro_batch": 64})) == phases(tiny("ppo", rl={"score_micro_batch": 2}))
    assert phases(tiny("ppo", rl={"score_micro_batch": 1}))["values"] < phases(tiny("ppo"))["values"]


@pytest.mark.parametrize("name", ["reference", "reward"])
def test_a_role_on_other_cards_adds_nothing_here(name: str) -> None:
    gone, there = tiny("ppo", roles={name: {"cards": "other"}}), tiny("ppo")
    held = under(there, "advantages", f"{name}/")
    assert under(gone, "advantages", f"{name}/") == 0 < held
    assert all(phases(there)[phase] - num_bytes == held for phase, num_bytes in phases(gone).items() if phase != "load")


@pytest.mark.parametrize("name", ["reference", "reward", "critic"])
def test_an_idle_role_adds_only_its_buffers(name: str) -> None:
    answer = tiny("ppo", roles={name: {"idle": {"params": "cpu", "optimizer": "cpu"}}})
    there = {t.path for t in answer.instant("actor_update").terms if t.path.startswith(f"{name}/")}
    assert there <= {f"{name}/buffers"}
    assert answer.host_bytes >= under(tiny("ppo"), "advantages", f"{name}/weights/")


def test_adapters_on_one_frozen_base_make_actor_critic_and_reference_one_set_of_weights() -> None:
    lora = {"r": 16}
    answer = tiny("ppo", lora=lora, roles={"critic": {"shares": "actor"}, "reward": None})
    assert under(answer, "advantages", "reference/") == 0
    assert under(answer, "advantages", "critic/weights/") < 0.05 * under(answer, "advantages", "actor/weights/")


def test_a_critic_on_the_actors_trunk_is_one_set_of_weights() -> None:
    answer = tiny("ppo", roles={"critic": {"shares": "actor"}})
    assert {"values", "critic_update"}.isdisjoint(phases(answer))
    assert under(answer, "advantages", "critic/") == 0 < under(answer, "advantages", "experience/values")


def test_packed_micro_batches_have_as_many_tokens_as_their_budget() -> None:
    """Eight sequences of 512 tokens, or one of 4,096, take the same, but for one log-softmax or eight."""
    assert phases(tiny("grpo", rl={"max_token_len": 8192}))["actor_update"] > phases(tiny("grpo", rl={"max_token_len": 4096}))["actor_update"]
    packed = tiny("grpo", rl={"max_token_len": 4096, "kl": "none"}, micro_batch=8, optimizer="adamw_torch_fused")
    apart = tiny(
        "grpo",
        rl={"kl": "none", "framework": "verl"},
        micro_batch=8,
        seq_len=512,
        optimizer="adamw_torch_fused",
        dtype="bfloat16",
        rollout={"engine": "transformers"},
        recompute="none",
        engine="ddp",
    )
    assert phases(packed)["actor_update"] == pytest.approx(phases(apart)["actor_update"], rel=0.05)


@pytest.mark.parametrize("framework", ["deepspeed-chat", "trl", "openrlhf", "verl", "nemo-rl"])
def test_each_framework_answers_with_its_defaults(framework: str) -> None:
    """What is left open is listed; who generates, and with which share of the card, is the framework's own."""
    answer = estimate(read_run("tinyllama-1.1b", task="ppo" if framework != "nemo-rl" else "grpo", rl={"framework": framework}, gpus=8, gpu="h100-80g"))
    assert any(line.startswith("what is left open is as") for line in answer.assumptions)
    assert ("weight_sync" in phases(answer)) == (framework in ("openrlhf", "verl", "nemo-rl"))
    assert phases(answer)["actor_update"] > 0


def test_runs_of_one_model_and_of_several_are_compared_row_by_row() -> None:
    found = compare({task: {"model": "tinyllama-1.1b", "task": task, "seq_len": 512} for task in ("train", "dpo", "ppo")})
    weights = found.terms()["actor/weights/layers"]
    assert len(set(weights)) == 1
    assert found.terms()["critic/weights/layers"][:2] == (0, 0)


def test_advice_puts_others_away_before_it_cuts() -> None:
    run = read_run("llama-7b", task="dpo", seq_len=512, micro_batch=1, gpu="a100-80g", optimizer="adamw_torch_fused", recompute="full")
    found = advise(run, limit_bytes=60 * GiB)
    away = next(taken for taken in found.rungs if taken.rung.name == "others put away")
    assert away.keys == {"roles": {"reference": {"idle": {"params": "cpu"}}}}
    assert away.saves_bytes > 12 * GiB


@pytest.mark.parametrize(
    ("keys", "phase"),
    [
        ({"recompute": "full"}, "actor_update"),
        ({"loss": "chunked"}, "reference_log_probs"),
        ({"rollout": {"prompt_length": 256, "response_length": 128}, "seq_len": None}, "actor_update"),
        ({"roles": {"reference": {"idle": {"params": "cpu"}}}}, "actor_update"),
        ({"roles": {"actor": {"idle": {"optimizer": "cpu"}}}}, "critic_update"),
        ({"rl": {"score_micro_batch": 1}}, "reference_log_probs"),
        ({"rl": {"experience": "host"}}, "advantages"),
        ({"rollout": {"micro_batch": 1}}, "rollout"),
        ({"engine": "deepspeed", "zero": 3, "gpus": 8}, "advantages"),
        ({"engine": "fsdp2", "gpus": 8}, "advantages"),
        ({"rollout": {"cards": "other"}}, "rollout"),
    ],
    ids=str,
)
def test_each_lever_lowers_its_phase(keys: dict[str, Any], phase: str) -> None:
    busy = {"micro_batch": 8, "optimizer": "adamw_torch_fused"}
    assert phases(tiny("ppo", **busy, **keys))[phase] < phases(tiny("ppo", **busy))[phase]


def test_entropies_of_all_logits_cost_more_than_of_some() -> None:
    found = [phases(tiny("grpo", micro_batch=8, optimizer="adamw_torch_fused", rl={"entropy": how}))["actor_update"] for how in ("none", "chunked", "whole")]
    assert found[0] <= found[1] < found[2]


class TestServer:
    """A server on the cards that train."""

    KEYS: ClassVar[dict[str, Any]] = {"gpu": "a100-80g", "rollout_engine": "vllm", "rollout_gpu_memory_utilization": 0.4}

    def test_it_takes_its_share_for_good_unless_it_sleeps(self) -> None:
        awake, light, deep = (tiny("grpo", **self.KEYS, rollout_sleep_level=level) for level in (0, 1, 2))
        held = [under(answer, "actor_update", "rollout/") for answer in (awake, light, deep)]
        assert 0.4 * 79 * GiB > held[0] > 0.35 * 79 * GiB
        assert held[1] == held[2] < 0.01 * held[0]
        assert light.host_bytes - deep.host_bytes == under(deep, "rollout", "rollout/weights/")

    def test_weights_go_to_it_before_its_cache_is_there(self) -> None:
        answer = tiny("grpo", **self.KEYS, rollout_sleep_level=2)
        assert under(answer, "weight_sync", "rollout/weights/") > 0 == under(answer, "weight_sync", "rollout/kv_cache/")
        assert tuple(phases(answer))[-1] == "weight_sync"

    def test_it_is_told_what_stands_under_serving(self) -> None:
        """A quarter of the sequences in one step is a quarter of what its sampler is measured with."""
        many, few = (tiny("grpo", **self.KEYS, serving={"max_num_seqs": n}) for n in (1024, 256))
        sampler = "rollout/activations/profiling run/sampler"
        assert under(many, "rollout", sampler) == 4 * under(few, "rollout", sampler)
        assert not any("serving" in line for line in few.ignored)
        with pytest.raises(InputError, match=r"^serving.max_num_seqs: rollout.engine transformers is told nothing so"):
            tiny("grpo", serving={"max_num_seqs": 256})

    def test_it_needs_a_card(self) -> None:
        with pytest.raises(InputError, match=r"^hardware.gpu: vllm takes a share of a card"):
            tiny("grpo", rollout_engine="vllm")


def test_arrays_of_sizes_are_as_single_ones() -> None:
    job = resolve(read_run("tinyllama-1.1b", task="ppo", seq_len=512, micro_batch=2, engine="deepspeed", zero=3, gpus=4))
    batch, seq = np.asarray([2, 3, 4]), np.asarray([512, 640, 768])
    many = walk_ranks(replace(job, micro_batch=batch, seq_len=seq), detailed=False)[0].walk.instants
    for i in range(3):
        one = walk_ranks(replace(job, micro_batch=int(batch[i]), seq_len=int(seq[i])), detailed=False)[0].walk.instants
        assert {name: int(np.broadcast_to(shot.total, 3)[i]) for name, shot in many.items()} == {name: shot.total for name, shot in one.items()}


class TestDeepSpeedChat:
    """LLaMA-7B, PPO of four models of its size, 8 × A100-80G: what practitioners report, and DeepSpeedExamples 368 and 705."""

    KEYS: ClassVar[dict[str, Any]] = {"task": "ppo", "gpus": 8, "rl": {"framework": "deepspeed-chat"}, "engine": "deepspeed"}

    def device(self, model: str, **keys: Any) -> float:
        return estimate(read_run(model, **{**self.KEYS, "gpu": "a100-80g", **keys})).most_loaded.device_bytes / GiB

    def test_with_nothing_put_away_it_needs_above_70_gib_a_card(self) -> None:
        assert self.device("llama-7b", zero=2, micro_batch=1) > 70

    def test_each_step_away_from_that_needs_less(self) -> None:
        away = {"offload": {"params": "cpu"}}
        steps: list[dict[str, Any]] = [
            {"zero": 2},
            {"zero": 3},
            {"zero": 3, "recompute": "full"},
            {"zero": 3, "recompute": "full", "roles": {"reference": away, "reward": away}},
            {"zero": 3, "recompute": "full", "roles": {"reference": away, "reward": away}, "offload_optimizer": "cpu"},
        ]
        found = [estimate(read_run("llama-7b", **{**self.KEYS, "micro_batch": 4, **keys})).peak.allocated_bytes for keys in steps]
        assert found == sorted(found, reverse=True)

    def test_hybrid_engine_and_offload_bring_it_to_around_30(self) -> None:
        away = {"offload": {"params": "cpu"}}
        keys = {"zero": 3, "recompute": "full", "offload_optimizer": "cpu", "rollout_engine": "deepspeed", "micro_batch": 16}
        assert 22 < self.device("llama-7b", **keys, roles={"reference": away, "reward": away}) < 34

    def test_opt_13b_with_the_hybrid_engine_takes_55_gb_and_not_40(self) -> None:
        roles = {"reference": {"offload": {"params": "cpu"}}, "critic": {"model": "opt-350m"}, "reward": {"model": "opt-350m"}}
        keys = {"zero": 3, "recompute": "full", "rollout_engine": "deepspeed", "micro_batch": 1, "roles": roles, "gpu": "a100-40g"}
        answer = estimate(read_run("opt-13b", **{**self.KEYS, **keys}))
        assert answer.verdict is not None
        assert not answer.verdict.fits
        assert answer.peak.name == "rollout"
        assert 48.5 * GiB < answer.peak.allocated_bytes < 55 * GiB
        gathered = under(answer, "rollout", "actor/weights/gathered for generation/")
        assert gathered == pytest.approx(23.94 * GiB, rel=0.01)

    def test_optimizers_on_the_host_are_counted_there(self) -> None:
        """Two models of 6.7 billion parameters: masters, moments and gradients, 12 to 20 bytes each."""
        answer = estimate(read_run("llama-7b", **{**self.KEYS, "zero": 3, "offload_optimizer": "cpu", "gpu": "a100-80g"}))
        assert 12 * 2 * 6.7e9 < answer.host_bytes < 24 * 2 * 6.7e9

    def test_with_zero_2_the_reference_is_whole_beside_the_actor(self) -> None:
        """Llama-2-7B on 8 × A100-40GB, reference said to be offloaded: at stage 2 it is not."""
        roles = {"reference": {"sharding": {"zero": 0}}, "critic": {"model": "opt-350m"}, "reward": {"model": "opt-350m"}}
        answer = estimate(read_run("llama-2-7b", **{**self.KEYS, "zero": 2, "recompute": "full", "roles": roles, "gpu": "a100-40g"}))
        assert under(answer, "load", "actor/") + under(answer, "load", "reference/") == pytest.approx(36.6 * GiB, rel=0.06)
        assert answer.verdict is not None
        assert not answer.verdict.fits


def test_dpo_of_half_a_billion_parameters_fails_on_80_gb_at_the_defaults() -> None:
    """huggingface/trl 3168: fp32, batch 8 of pairs, 1,024 tokens, no checkpointing; a batch of one in bf16 with checkpointing fits easily."""
    at_once = {"task": "dpo", "seq_len": 1024, "gpu": "a100-80g"}
    defaults = estimate(read_run("qwen2-0.5b", **at_once, micro_batch=8, dtype="float32"))
    assert defaults.verdict is not None
    assert not defaults.verdict.fits
    logits = [t for t in defaults.instant("forward_peak").terms if t.bytes == 16 * 1024 * 151936 * 4]
    assert logits  # one fp32 logits tensor of 9.27 GiB
    small = estimate(read_run("qwen2-0.5b", **at_once, micro_batch=1, recompute="full"))
    assert small.verdict is not None
    assert small.verdict.fits
    assert small.most_loaded.device_bytes < 12 * GiB


def test_a_server_that_would_not_start_is_a_refusal() -> None:
    answer = estimate(
        read_run("llama-7b", task="grpo", seq_len=1024, gpu="a100-80g", engine="fsdp2", gpus=8, rollout_engine="vllm", rollout_gpu_memory_utilization=0.1)
    )
    assert answer.verdict is not None
    assert not answer.verdict.fits
    assert answer.verdict.refusal


def test_a_sweep_over_lengths_moves_the_prompt_with_them() -> None:
    """Arrays of sizes give what each gives alone, where prompt and answer follow from the length."""
    found = memcalc.sweep("smollm2-135m", task="grpo", micro_batch=[1, 16], seq_len=[32, 2048])
    for combination in found.combinations():
        alone = memcalc.estimate("smollm2-135m", task="grpo", **combination.values)
        assert combination.peak_bytes == alone.peak.allocated_bytes, combination


@pytest.mark.parametrize("task", ["ppo", "grpo", "rloo", "dpo", "kto"])
@pytest.mark.parametrize("lora", [None, {"r": 8, "target_modules": "all-linear"}])
def test_no_term_of_any_phase_is_negative(task: str, lora: dict[str, Any] | None) -> None:
    """Of a sequence whose last hidden states the head reads in part, too."""
    found = estimate(read_run("llama-3.2-1b", task=task, seq_len=4096, lora=lora))
    assert min(term.bytes for rank in found.ranks for instant in rank.instants for term in instant.terms) >= 0
