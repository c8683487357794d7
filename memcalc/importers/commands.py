"""A launch command as it stands in argv: its launcher, the program, the files that it names. Nothing is run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import launchers, trl
from memcalc.importers.arguments import ENDINGS, by_keys, named_files, read_arguments
from memcalc.importers.argv import split
from memcalc.importers.facts import COMMAND, Facts, Link
from memcalc.importers.format import load, normal, recognised
from memcalc.importers.rules import names
from memcalc.importers.source import read_source
from memcalc.importers.wrappers import unwrapped

MODULES = (
    ("openrlhf.", "openrlhf"), ("verl.trainer.fsdp_sft", "verl_sft"), ("verl.", "verl"), ("torchtitan", "torchtitan"),
    ("vllm.", "vllm"), ("sglang.", "sglang"), ("sglang_router.launch_server", "sglang"), ("axolotl.", "axolotl"),
    ("llamafactory.", "llamafactory"), ("swift.", "ms_swift"), ("trl.", "trainer"), ("torch.distributed", ""), ("nemo_automodel", "automodel"),
)  # fmt: skip
"""Modules behind ``-m`` by how they begin, and the format of their arguments."""
SCRIPTS = (
    (r"pretrain_\w+\.py", "megatron"), (r"(run_)?train_gpt\.py", "megatron"), (r"main_(ppo|grpo)\.py", "verl"),
    (r"fsdp_sft_trainer\.py", "verl_sft"), (r"run_grpo\w*\.py", "nemo_rl"),
    (r"launch_server(\.py)?", "sglang"), (r"api_server(\.py)?", "vllm"), (r"run_recipe\.py", "megatron"), (r"unsloth[-_]cli\.py", "unsloth"),
)  # fmt: skip
OTHERS = re.compile(r"pretrain_(bert|t5|retro|ict|biencoder|vision_\w+|mamba|hybrid|vlm)\.py")
"""Models of Megatron that are no GPT, by their scripts."""
OPENRLHF = {"train_dpo": "dpo", "train_rm": "reward", "train_kd": "distill", "train_kto": "kto", "train_ppo_ray": "ppo", "train_ppo": "ppo"}
"""Tasks by the module of OpenRLHF."""
SAY_LITTLE = names(
    "model model_id model_path model_name_or_path dtype torch_dtype load_in_4bit load_in_8bit attn_implementation max_length use_cache "
    "model_max_length max_new_tokens deepspeed"
)
"""Keys that a script which does not train has, too."""
ALIASES = {
    "accelerate.commands.launch": ("accelerate", "launch"),
    "accelerate.commands.accelerate_cli": ("accelerate",),
    "deepspeed.launcher.runner": ("deepspeed",),
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.launch": ("torchrun",),
    "vllm.entrypoints.cli.main": ("vllm",),
}
"""Launchers as modules behind ``python -m``."""
MAX_WORDS = 5000
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Variables that torch reads its allocator's settings from, the old name and the new."""


def read_command(facts: Facts, argv: Sequence[str]) -> None:
    """The facts of a command.

    Raises:
        InputError: no program stands in it.
    """
    if len(argv) > MAX_WORDS:
        raise InputError(f"has {len(argv):,} words", where="command")
    words = unwrapped(facts, argv)
    for name in ALLOCATOR:
        if "expandable_segments:true" in facts.env.get(name, "").replace(" ", "").lower():
            facts.put("expandable_segments", value=True, where=name)
    facts.rank = COMMAND
    _program(facts, words)


def _program(facts: Facts, words: list[str]) -> None:
    name = words[0].replace("\\", "/").rpartition("/")[2].lower()
    rest = words[1:]
    if re.fullmatch(r"python[\d.]*(\.exe)?", name):
        _python(facts, rest)
    elif name in ("torchrun", "torchpippy"):
        _script(facts, launchers.torchrun(facts, rest))
    elif name == "deepspeed":
        _script(facts, launchers.deepspeed(facts, rest))
    elif name == "accelerate":
        _script(facts, launchers.accelerate(facts, rest))
    elif name in OWN:
        OWN[name](facts, rest)
    elif words[0].startswith("--"):
        read_arguments(facts, words, by_keys(split(words)))
    else:
        _script(facts, words, alone=True)


def _python(facts: Facts, words: list[str]) -> None:
    while words and words[0] in ("-u", "-O", "-B", "-W", "-X"):
        words = words[2:] if words[0] in ("-W", "-X") else words[1:]
    if words[:1] == ["-m"] and words[1:2] and words[1] in ALIASES:
        _program(facts, [*ALIASES[words[1]], *words[2:]])
        return
    _script(facts, words, alone=True)


def _script(facts: Facts, words: list[str], *, alone: bool = False) -> None:
    """A script, or a module behind ``-m``, and its arguments."""
    module = words[:1] == ["-m"]
    words = words[1:] if module else words
    if not words:
        raise InputError("no script stands in the command", where="command")
    name, rest = words[0], words[1:]
    last = name.rpartition("/")[2]
    if module:
        found = next((format_ for prefix, format_ in MODULES if name.startswith(prefix)), None)
    else:
        found = next((format_ for pattern, format_ in SCRIPTS if re.fullmatch(pattern, last)), None)
    format_name = found or by_keys(split(rest))
    if alone and "~started" in facts.found:
        facts.put("~world", facts.get("~started"), facts.where("~started"))
    elif alone and format_name in ("trainer", "llamafactory", "ms_swift", "axolotl", "litgpt", "unsloth", "alpaca_lora", "llama_cookbook"):
        facts.put("~world", 1, "a single process")
    if format_name == "trainer":
        trl.named(facts, name if module or name.endswith(".py") else "", where=name)
        if not module and name.endswith(".py") and os.path.isfile(name) and not _said(rest):  # noqa: PTH113
            format_name = recognised(read_source(name)).name
            facts.links.append(Link(name, name, ".", format_name))
        elif alone and "~trl" not in facts.found:
            _must_train(facts, name, rest)
    if format_name == "megatron" and (other := OTHERS.fullmatch(last)):
        facts.unused.append(f"{name}: Megatron's {other.group(1)} is counted as a GPT of these sizes")
    if name.startswith("openrlhf."):
        facts.put("task", OPENRLHF.get(name.rpartition(".")[2], "train"), name)
    read_arguments(facts, rest, format_name)


def _said(words: Sequence[str]) -> set[str]:
    """Keys of training among a script's arguments."""
    return {normal(key) for key, _, _ in split(words).given} & set(load("trainer").keys) - set(SAY_LITTLE)


def _must_train(facts: Facts, name: str, words: Sequence[str]) -> None:
    """Note a script of which nothing says that it trains, for whoever knows what else is given; another program is no launch then."""
    if not _said(words) and not any(named_files(split(words))) and not re.search(r"train|tun|sft|dpo|ppo|grpo|run_clm", name):
        if not name.endswith(".py"):
            raise InputError(f"{name[:80]} is no launch that memcalc knows: python, torchrun, accelerate, deepspeed, {', '.join(OWN)} are", where="command")
        facts.put("~does_not_train", name, name)


# ---------------------------------------------------------------------- programs of their own
def _llamafactory(facts: Facts, words: list[str]) -> None:
    if words[:1] not in (["train"], ["sft"], ["chat"], ["webchat"], ["api"]):
        raise InputError(f"llamafactory-cli {words[0] if words else ''}: it neither trains nor serves; train, sft, chat, webchat, api do", where="command")
    launchers.environment(facts, always=True)
    if words[0] not in ("train", "sft"):
        facts.put("~backend", "", f"llamafactory-cli {words[0]}")
    elif (facts.cards > 1 or "FORCE_TORCHRUN" in facts.env) and facts.env.get("OPTIM_TORCH", "1") == "1":
        facts.default("expandable_segments", value=True, framework="llamafactory-cli, which starts torchrun so unless OPTIM_TORCH=0")
    read_arguments(facts, words[1:], "llamafactory", positional=True)


def _axolotl(facts: Facts, words: list[str]) -> None:
    if words[:1] != ["train"]:
        raise InputError(f"axolotl {words[0] if words else ''}: `axolotl train` was expected", where="command")
    behind = words.index("--") if "--" in words else len(words)
    mine, theirs = words[1:behind], words[behind + 1 :]
    parsed = split(mine)
    launcher = parsed.get("launcher") or "accelerate"
    if theirs:
        (launchers.torchrun if launcher == "torchrun" else _accelerate_arguments)(facts, theirs)
    rest = [word for at, word in enumerate(mine) if not (word.startswith("--launcher") or (at and mine[at - 1] == "--launcher"))]
    read_arguments(facts, rest, "axolotl", positional=True)


def _accelerate_arguments(facts: Facts, words: list[str]) -> list[str]:
    return launchers.accelerate(facts, ["launch", *words])


SERVES = ("infer", "deploy", "rollout", "eval", "app")
"""What ms-swift does with a model that it does not train."""


def _swift(facts: Facts, words: list[str]) -> None:
    if words[:1] and words[0] in SERVES:
        launchers.cards_seen(facts)
        if words[0] == "rollout":
            facts.put("~backend", "vllm", "swift rollout")
        read_arguments(facts, words[1:], "ms_swift_serve", positional=True)
        return
    if words[:1] not in (["sft"], ["rlhf"], ["pt"]):
        raise InputError(f"swift {words[0] if words else ''}: it neither trains nor serves; sft, pt, rlhf, {', '.join(SERVES)} are read", where="command")
    launchers.environment(facts)
    read_arguments(facts, words[1:], "ms_swift", positional=True)


def _megatron(facts: Facts, words: list[str]) -> None:
    if words[:1] not in (["sft"], ["rlhf"], ["pt"]):
        raise InputError(f"megatron {words[0] if words else ''}: it does not train; megatron sft, pt and rlhf are read", where="command")
    facts.put("~megatron_keys", value=True, where="megatron")
    _swift(facts, words)


def _tune(facts: Facts, words: list[str]) -> None:
    if words[:1] != ["run"]:
        raise InputError(f"tune {words[0] if words else ''}: `tune run` was expected", where="command")
    rest = launchers.torchrun(facts, words[1:])
    if not rest:
        raise InputError("no recipe stands behind tune run", where="command")
    if "~gpus_per_node" not in facts.found:
        facts.put("~gpus_per_node", 1, "tune run without --nproc_per_node")
    config = split(rest[1:]).get("config")
    if isinstance(config, str) and not config.endswith(ENDINGS):
        facts.links.append(Link(config, "--config", ".", "torchtune"))
    read_arguments(facts, rest[1:], "torchtune")


def _vllm(facts: Facts, words: list[str]) -> None:
    if words[:1] != ["serve"]:
        raise InputError(f"vllm {words[0] if words else ''}: `vllm serve` was expected", where="command")
    rest = words[1:]
    if rest and not rest[0].startswith("-"):
        facts.put("model", rest[0], "vllm serve")
        rest = rest[1:]
    read_arguments(facts, rest, "vllm")


def _sglang(facts: Facts, words: list[str]) -> None:
    read_arguments(facts, words[1:] if words[:1] in (["serve"], ["launch_server"]) else words, "sglang")


def _trtllm(facts: Facts, words: list[str]) -> None:
    rest = words[1:] if words[:1] == ["serve"] else words
    if rest and not rest[0].startswith("-"):
        facts.put("model", rest[0], "trtllm-serve")
        rest = rest[1:]
    read_arguments(facts, rest, "trtllm")


def _llamacpp(facts: Facts, words: list[str]) -> None:
    read_arguments(facts, words, "llamacpp")


def _automodel(facts: Facts, words: list[str]) -> None:
    """``automodel finetune llm -c f.yaml``, and ``automodel f.yaml --nproc-per-node 8``."""
    while words[:1] and words[0] in ("finetune", "pretrain", "kd", "benchmark", "llm", "vlm"):
        words = words[1:]
    parsed = split(words)
    launchers.processes(facts, parsed, each=("nproc_per_node",), nodes=("nnodes",))
    launchers.every_card(facts, "automodel")
    read_arguments(facts, parsed.without("nproc_per_node", "nnodes"), "automodel", positional=True)


def _unsloth(facts: Facts, words: list[str]) -> None:
    if words[:1] != ["train"]:
        raise InputError(f"unsloth {words[0] if words else ''}: `unsloth train` was expected", where="command")
    facts.put("~world", 1, "a single process")
    read_arguments(facts, words[1:], "unsloth", positional=True)


def _litgpt(facts: Facts, words: list[str]) -> None:
    if words[:1] == ["finetune"]:
        words = ["finetune_lora", *words[1:]]
    if not words or not words[0].startswith(("finetune", "pretrain")):
        raise InputError(f"litgpt {words[0] if words else ''}: litgpt finetune_lora, finetune_full and pretrain are read", where="command")
    facts.put("~recipe", words[0], f"litgpt {words[0]}")
    rest = words[1:]
    if rest and not rest[0].startswith("-"):
        rest = ["--checkpoint_dir" if words[0] != "pretrain" else "--model_name", *rest]
    read_arguments(facts, rest, "litgpt", positional=True)


def _trl(facts: Facts, words: list[str]) -> None:
    if not words:
        raise InputError("trl: a trainer such as sft was expected", where="command")
    if words[0] == "vllm-serve":
        read_arguments(facts, words[1:], "vllm")
        return
    trl.named(facts, words[0], where=f"trl {words[0]}", sure=True)
    read_arguments(facts, launchers.trl(facts, words[1:]), "trainer")


OWN: dict[str, Any] = {
    "llamafactory-cli": _llamafactory,
    "lmf": _llamafactory,
    "axolotl": _axolotl,
    "swift": _swift,
    "megatron": _megatron,
    "automodel": _automodel,
    "litgpt": _litgpt,
    "unsloth": _unsloth,
    "tune": _tune,
    "vllm": _vllm,
    "sglang": _sglang,
    "trtllm-serve": _trtllm,
    "llama-server": _llamacpp,
    "llama-cli": _llamacpp,
    "trl": _trl,
}
"""Programs with a launcher of their own."""

__all__ = ["read_command"]
