"""What frameworks do where a run leaves it open: keys of a run, and habits that no key says. One entry for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from memcalc.dataclass import dataclass
from memcalc.engine.rlhf.tasks import TASKS
from memcalc.specs.run import Run, ShardingSpec
from memcalc.specs.spec import Spec

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Habits:
    """How a trainer goes about it.

    Attributes:
        objective: what it takes of the actor's head.
        fused: the same under loss fused_linear.
        megatron: the same of Megatron's output layer, by the loss of the run.
        whole: of all tokens, not of the answer's only.
        gathers: under stage 3 the whole actor is brought together to generate.
        keeps_scores: logits of all answers are kept from generation on.
        skips_actor: the actor's log-probabilities of a rollout are those of its first update, so that no pass is needed for them.
        joint: actor and critic take one step on one loss.
        plain_updates: entropies are found in the pass for old log-probabilities, and not in updates, unless they are part of the loss.
    """

    objective: str = "policy"
    fused: str | None = None
    megatron: Mapping[str, str] = field(default_factory=lambda: {"cross_entropy": "policy"})
    whole: bool = False
    gathers: bool = False
    keeps_scores: bool = False
    skips_actor: bool = False
    joint: bool = False
    plain_updates: bool = False


class Lengths(NamedTuple):
    """Tokens of a prompt and of an answer, where nobody says how many."""

    prompt: int = 512
    answer: int = 512


@dataclass(frozen=True)
class Preset:
    """One framework.

    Attributes:
        version: that it holds for.
        lengths: of sequences, and by task where they differ.
        keys: of a run, nested, for what is left open.
        of_task: further ones by task.
        habits: likewise, and by task where they differ.
    """

    version: str
    keys: Keys
    of_task: Mapping[str, Keys] = field(default_factory=dict)
    habits: Habits = Habits()
    habits_of_task: Mapping[str, Habits] = field(default_factory=dict)
    lengths: Lengths = Lengths()
    lengths_of_task: Mapping[str, Lengths] = field(default_factory=dict)


AWAY = {"idle": {"params": "cpu", "optimizer": "cpu", "gradients": "cpu"}}

PRESETS: dict[str, Preset] = {
    "trl": Preset(
        "TRL 1.10",
        {"recompute": "full"},
        {
            "grpo": {"rollout": {"num_generations": 8, "gpu_memory_utilization": 0.3}, "rl": {"kl": "none", "entropy": "chunked"}},
            "rloo": {"rollout": {"num_generations": 2, "gpu_memory_utilization": 0.3}, "rl": {"kl": "reward", "entropy": "chunked"}},
            "ppo": {"rl": {"kl": "reward", "epochs": 4, "score_micro_batch": 64}, "recompute": "none"},
        },
        Habits(gathers=True, skips_actor=True),
        {"ppo": Habits("policy in place", gathers=True, keeps_scores=True, joint=True)},
        lengths_of_task={"ppo": Lengths(answer=53)},
    ),
    "verl": Preset(
        "verl 0.6",
        {
            "dtype": "float32",
            "autocast": "bfloat16",
            "attention": "flash_attention_2",
            "recompute": "full",
            "sharding": {"engine": "fsdp1"},
            "rollout": {
                "engine": "vllm",
                "gpu_memory_utilization": 0.5,
                "tensor_parallel_size": 2,
                "sleep_level": 1,
                "bucket_mb": 2048,
            },
            "rl": {"kl": "none", "entropy": "whole"},
            "serving": {"max_num_seqs": 256, "max_num_batched_tokens": 8192},
        },
        habits=Habits(
            objective="policy by kernel",
            fused="policy by chunks",
            megatron={"cross_entropy": "policy divided", "fused_linear": "policy in pieces"},
            whole=True,
            plain_updates=True,
        ),
    ),
    "openrlhf": Preset(
        "OpenRLHF 0.10",
        {
            "sharding": {"engine": "deepspeed", "zero": 2},
            "rollout": {"engine": "vllm", "gpu_memory_utilization": 0.95},
            "rl": {"kl": "reward"},
        },
        habits=Habits(objective="policy in fp32", whole=True),
        lengths=Lengths(1024, 1024),
    ),
    "deepspeed-chat": Preset(
        "DeepSpeedExamples, applications/DeepSpeed-Chat",
        {
            "sharding": {"engine": "deepspeed", "zero": 0},
            "dtype": "float16",
            "rl": {"kl": "reward"},
        },
        habits=Habits(whole=True, gathers=True),
        lengths=Lengths(256, 256),
    ),
    "nemo-rl": Preset(
        "NeMo-RL 0.5",
        {
            "dtype": "float32",
            "autocast": "bfloat16",
            "sharding": {"engine": "fsdp2"},
            "rollout": {"engine": "vllm", "gpu_memory_utilization": 0.6, "num_generations": 16, "sleep_level": 1},
            "rl": {"kl": "loss"},
            "roles": {"actor": AWAY, "reference": {"shares": "storage"}},
        },
        {"ppo": {"roles": {"critic": AWAY}}},
        habits=Habits(objective="policy in fp32", whole=True, megatron={"cross_entropy": "policy by log-softmax", "fused_linear": "policy by chunks"}),
    ),
}
"""By name. TRL: trainer/grpo_config.py, rloo_config.py, experimental/ppo/ppo_config.py. verl: trainer/config/_generated_ppo_trainer.yaml; entropies in
the pass for old log-probabilities (workers/actor/dp_actor.py). OpenRLHF: cli/train_ppo_ray.py; models/actor.py takes logits in fp32. DeepSpeed-Chat:
training/step3_rlhf_finetuning/main.py. NeMo-RL: examples/configs/grpo_math_1B.yaml; models/policy/workers/megatron_policy_worker.py, whose
reference is put in the place of the policy's weights for its pass (``use_reference_model``), as in dtensor_policy_worker_v2.py."""


def with_preset(run: Run) -> tuple[Run, list[str]]:
    """The run with the defaults of the framework that it names, and what was assumed; of one pass over given answers it has habits only."""
    if run.rl.framework is None or not TASKS[run.task].is_online:
        return run, []
    preset = PRESETS[run.rl.framework]
    keys = _merged(preset.keys, preset.of_task.get(run.task, {}))
    if run.code == "megatron":
        keys = _megatron(keys)
    if "roles" in keys:
        keys["roles"] = {name: own for name, own in _open_roles(run, keys["roles"]).items() if own}
    if run.rollout.engine != "vllm" and "engine" in run.rollout.model_fields_set:
        keys.pop("serving", None)  # in vLLM's words
    if run.precision is not None:
        keys = {key: value for key, value in keys.items() if key not in ("dtype", "autocast")}
    if "dtype" in run.model_fields_set and "autocast" in keys:
        keys = {key: value for key, value in keys.items() if key != "autocast"}
    found = _filled(run, keys)
    return found, [f"what is left open is as {preset.version} has it: {', '.join(_taken(run, keys))}"]


def _open_roles(run: Run, keys: Keys) -> dict[str, Any]:
    """What a framework says of roles, where the run leaves it open; a reference that is another model has storage of its own."""
    given = run.roles or {}
    found = {name: own for name, own in keys.items() if given.get(name, {}) not in (None, False)}
    for name, mine in given.items():
        if name in found and isinstance(mine, Mapping):
            found[name] = {key: value for key, value in found[name].items() if key not in mine and not (key == "shares" and "model" in mine)}
    return found


def _megatron(keys: dict[str, Any]) -> dict[str, Any]:
    """What frameworks leave open where Megatron trains: weights in bf16, the distributed optimizer, no fusion that needs more than Transformer Engine."""
    kept = {key: value for key, value in keys.items() if key not in ("dtype", "autocast", "recompute", "sharding")}
    return {**kept, "sharding": {"engine": "megatron", "use_distributed_optimizer": True, "gradient_accumulation_fusion": False}}


def habits_of(run: Run) -> Habits:
    """The habits of the framework that a run names, or those of a plain loop."""
    if run.rl.framework is None:
        return Habits()
    preset = PRESETS[run.rl.framework]
    return preset.habits_of_task.get(run.task, preset.habits)


def lengths_of(run: Run) -> Lengths:
    """Prompts and answers of the framework that a run names, or those of a plain loop."""
    if run.rl.framework is None:
        return Lengths()
    preset = PRESETS[run.rl.framework]
    return preset.lengths_of_task.get(run.task, preset.lengths)


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
        elif key == "roles":
            given = spec.roles or {}
            both = {name: {**own, **given[name]} if isinstance(given.get(name), Mapping) else own for name, own in value.items()}
            update[key] = {**given, **both} or None
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
        elif (key not in spec.model_fields_set or key == "roles") and value != {}:
            found.append(f"{place}{key} {_plain(value)}")
    return found
