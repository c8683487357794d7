"""What frameworks do where a run leaves it open: keys of a run, and habits that no key says. One entry for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from memcalc.dataclass import dataclass
from memcalc.specs.run import Run, ShardingSpec
from memcalc.specs.spec import Spec

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Habits:
    """How a trainer goes about it.

    Attributes:
        objective: what it takes of the actor's head.
        whole: of all tokens, not of the answer's only.
        gathers: under stage 3 the whole actor is brought together to generate.
        keeps_scores: logits of all answers are kept from generation on.
        skips_actor: the actor's log-probabilities of a rollout are those of its first update, so that no pass is needed for them.
        joint: actor and critic take one step on one loss.
        plain_updates: entropies are found in the pass for old log-probabilities, and not in updates, unless they are part of the loss.
    """

    objective: str = "policy"
    whole: bool = False
    gathers: bool = False
    keeps_scores: bool = False
    skips_actor: bool = False
    joint: bool = False
    plain_updates: bool = False


@dataclass(frozen=True)
class Preset:
    """One framework.

    Attributes:
        version: that it holds for.
        keys: of a run, nested, for what is left open.
        of_task: further ones by task.
        habits: likewise, and by task where they differ.
    """

    version: str
    keys: Keys
    of_task: Mapping[str, Keys] = field(default_factory=dict)
    habits: Habits = Habits()
    habits_of_task: Mapping[str, Habits] = field(default_factory=dict)


PRESETS: dict[str, Preset] = {
    "trl": Preset(
        "TRL 1.10",
        {"rollout": {"prompt_length": 512, "response_length": 512}, "recompute": "full"},
        {
            "grpo": {"rollout": {"num_generations": 8, "gpu_memory_utilization": 0.3}, "rl": {"kl": "none", "entropy": "chunked"}},
            "rloo": {"rollout": {"num_generations": 2, "gpu_memory_utilization": 0.3}, "rl": {"kl": "reward", "entropy": "chunked"}},
            "ppo": {"rollout": {"response_length": 53}, "rl": {"kl": "reward", "epochs": 4, "score_micro_batch": 64}, "recompute": "none"},
        },
        Habits(gathers=True, skips_actor=True),
        {"ppo": Habits("policy in place", gathers=True, keeps_scores=True, joint=True)},
    ),
    "verl": Preset(
        "verl 0.6",
        {
            "dtype": "float32",
            "autocast": "bfloat16",
            "recompute": "full",
            "sharding": {"engine": "fsdp1"},
            "rollout": {
                "engine": "vllm",
                "prompt_length": 512,
                "response_length": 512,
                "gpu_memory_utilization": 0.5,
                "tensor_parallel_size": 2,
                "sleep_level": 1,
                "bucket_mb": 2048,
            },
            "rl": {"kl": "none", "entropy": "whole"},
        },
        habits=Habits(whole=True, plain_updates=True),
    ),
    "openrlhf": Preset(
        "OpenRLHF 0.10",
        {
            "sharding": {"engine": "deepspeed", "zero": 2},
            "rollout": {"engine": "vllm", "prompt_length": 1024, "response_length": 1024, "gpu_memory_utilization": 0.95},
            "rl": {"kl": "reward"},
        },
        habits=Habits(objective="policy in fp32", whole=True),
    ),
    "deepspeed-chat": Preset(
        "DeepSpeedExamples, applications/DeepSpeed-Chat",
        {
            "sharding": {"engine": "deepspeed", "zero": 0},
            "dtype": "float16",
            "rollout": {"prompt_length": 256, "response_length": 256},
            "rl": {"kl": "reward"},
        },
        habits=Habits(whole=True, gathers=True),
    ),
    "nemo-rl": Preset(
        "NeMo-RL 0.5",
        {
            "dtype": "float32",
            "autocast": "bfloat16",
            "sharding": {"engine": "fsdp2"},
            "rollout": {"engine": "vllm", "prompt_length": 512, "response_length": 512, "gpu_memory_utilization": 0.6, "num_generations": 16, "sleep_level": 1},
            "rl": {"kl": "loss"},
            "roles": {"actor": {"idle": {"params": "cpu", "optimizer": "cpu"}}, "reference": {"idle": {"params": "cpu"}}},
        },
        habits=Habits(objective="policy in fp32", whole=True),
    ),
}
"""By name. TRL: trainer/grpo_config.py, rloo_config.py, experimental/ppo/ppo_config.py. verl: trainer/config/_generated_ppo_trainer.yaml; entropies in
the pass for old log-probabilities (workers/actor/dp_actor.py). OpenRLHF: cli/train_ppo_ray.py; models/actor.py takes logits in fp32. DeepSpeed-Chat:
training/step3_rlhf_finetuning/main.py. NeMo-RL: examples/configs/grpo_math_1B.yaml."""


def with_preset(run: Run) -> tuple[Run, list[str]]:
    """The run with the defaults of the framework that it names, and what was assumed."""
    if run.rl.framework is None:
        return run, []
    preset = PRESETS[run.rl.framework]
    keys = _merged(preset.keys, preset.of_task.get(run.task, {}))
    if run.precision is not None:
        keys = {key: value for key, value in keys.items() if key not in ("dtype", "autocast")}
    if "dtype" in run.model_fields_set and "autocast" in keys:
        keys = {key: value for key, value in keys.items() if key != "autocast"}
    if run.seq_len is not None:  # the answer is what the prompt leaves of it
        keys["rollout"] = {key: value for key, value in keys.get("rollout", {}).items() if key not in ("prompt_length", "response_length")}
    found = _filled(run, keys)
    return found, [f"what is left open is as {preset.version} has it: {', '.join(_taken(run, keys))}"]


def habits_of(run: Run) -> Habits:
    """The habits of the framework that a run names, or those of a plain loop."""
    if run.rl.framework is None:
        return Habits()
    preset = PRESETS[run.rl.framework]
    return preset.habits_of_task.get(run.task, preset.habits)


def _merged(keys: Keys, more: Keys) -> dict[str, Any]:
    both = {**keys, **more}
    return {key: {**keys[key], **more[key]} if isinstance(keys.get(key), Mapping) and isinstance(more.get(key), Mapping) else both[key] for key in both}


def _filled(spec: Any, keys: Keys) -> Any:
    """A spec with keys that it leaves open."""
    update: dict[str, Any] = {}
    for key, value in keys.items():
        if isinstance(getattr(spec, key), Spec):
            if not _says_engine(getattr(spec, key)):
                update[key] = _filled(getattr(spec, key), value)
        elif key not in spec.model_fields_set:
            update[key] = value
    return spec.model_copy(update=update)


def _says_engine(spec: Spec) -> bool:
    """A run that says who shards says it all."""
    return isinstance(spec, ShardingSpec) and bool(spec.engine or spec.deepspeed)


def _plain(value: Any) -> str:
    """As YAML has it in one line."""
    return f"{{{', '.join(f'{key}: {_plain(inner)}' for key, inner in value.items())}}}" if isinstance(value, Mapping) else str(value)


def _taken(spec: Any, keys: Keys, place: str = "") -> list[str]:
    found = []
    for key, value in keys.items():
        inner = getattr(spec, key)
        if isinstance(inner, Spec):
            if not _says_engine(inner):
                found += _taken(inner, value, f"{key}.")
        elif key not in spec.model_fields_set:
            found.append(f"{place}{key} {_plain(value)}")
    return found
