"""Launchers: how many processes they start, and what they run. They are read, never run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.argv import Words, leading, split
from memcalc.importers.facts import Entry, Facts, Link
from memcalc.importers.format import load, normal, write
from memcalc.importers.formats import accelerate as accelerate_format
from memcalc.importers.trl import name_accelerate

Launcher = Callable[[Facts, list[str]], list[str]]

TORCHRUN = frozenset(["standalone", "no_python", "run_path", "use_env", "log_line_prefix_template_", "h", "help"])
ACCELERATE = frozenset(
    [
        "quiet",
        "cpu",
        "multi_gpu",
        "tpu",
        "ipex",
        "use_deepspeed",
        "use_fsdp",
        "use_parallelism_config",
        "use_megatron_lm",
        "use_xpu",
        "debug",
        "dynamo_use_dynamic",
        "dynamo_use_fullgraph",
        "no_python",
        "tpu_cluster",
        "no_tpu_cluster",
        "tpu_use_sudo",
        "same_network",
        "enable_cpu_affinity",
    ]
)
DEEPSPEED = frozenset(
    ["no_python", "no_local_rank", "force_multi", "save_pid", "enable_each_rank_log_", "bind_cores_to_rank", "no_ssh_check", "no_ssh", "elastic_training"]
)


def torchrun(facts: Facts, words: list[str]) -> list[str]:
    """``torchrun --nproc_per_node 8 --nnodes 2 script.py …``."""
    own, rest = leading(words, switches=TORCHRUN)
    processes(facts, own, each=("nproc_per_node", "nproc"), nodes=("nnodes",))
    return rest


def deepspeed(facts: Facts, words: list[str]) -> list[str]:
    """``deepspeed --num_gpus 8 --num_nodes 2 script.py …``, ``--include host:0,1``."""
    own, rest = leading(words, switches=DEEPSPEED)
    included = own.get("include", "i")
    if included:
        count = sum(len(part.partition(":")[2].split(",")) if ":" in part else 0 for part in str(included).split("@"))
        if count:
            facts.put("~world", count, "--include")
    processes(facts, own, each=("num_gpus",), nodes=("num_nodes",))
    every_card(facts, "deepspeed")
    facts.put("~started_by_deepspeed", value=True, where="deepspeed")
    return rest


def accelerate(facts: Facts, words: list[str], *, told: bool = False) -> list[str]:
    """``accelerate launch --config_file f.yaml --num_processes 8 script.py …``: its flags are keys of its file."""
    if words[:1] != ["launch"]:
        raise InputError(f"accelerate {words[0] if words else ''}: `accelerate launch` was expected", where="command")
    own, rest = leading(words[1:], switches=ACCELERATE)
    format_ = load("accelerate")
    for key, value, shown in own.given:
        name = key.replace("-", "_")
        if name == "config_file":
            facts.links.append(Link(str(value), shown, ".", "accelerate"))
        elif name in ("use_fsdp", "use_deepspeed", "multi_gpu"):
            write(facts, format_, Entry("distributed_type", {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "multi_gpu": "MULTI_GPU"}[name], shown))
        elif name not in ("main_process_port", "main_process_ip", "machine_rank", "num_cpu_threads_per_process", "rdzv_backend", "gpu_ids", "quiet", "module"):
            write(facts, format_._replace(strict=False), Entry(_section(name), value, shown))
    if own.get("config_file") is None and not told:
        every_card(facts, "accelerate launch")
    facts.files.append(("accelerate launch", format_.title))
    facts.formats.add("accelerate")
    return rest


def trl(facts: Facts, words: list[str]) -> Words:
    """``trl sft --accelerate_config zero3 --num_processes 8 …``: what the trainer has no argument for goes to ``accelerate launch`` (TRL 1.16, trl/cli)."""
    keys = load("trainer").keys.keys() - {"num_processes"}
    parsed = split(words)
    own, told = ["launch"], parsed.get("config") is not None
    theirs: list[tuple[str, Any, str]] = []
    for key, value, shown in parsed.given:
        name = normal(key)
        if name == "accelerate_config":
            name_accelerate(facts, Entry(key, value, shown))
            told = True
        elif name not in keys and (name in ACCELERATE or _section(name) in accelerate_format.KEYS):
            own += [f"--{name}"] if value is True else [f"--{name}={value}"]
        else:
            theirs.append((key, value, shown))
    accelerate(facts, [*own, "trl"], told=told)
    return Words(tuple(theirs), parsed.plain)


def _section(name: str) -> str:
    """The key of accelerate's file that a flag stands for."""
    if name.startswith("fsdp_"):
        return f"fsdp_config.{name}"
    if f"deepspeed_config.{name}" in accelerate_format.KEYS and name != "gradient_accumulation_steps":
        return f"deepspeed_config.{name}"
    if name.startswith("fp8_"):
        return f"fp8_config.{name.removeprefix('fp8_')}"
    if name.startswith("parallelism_config_"):
        return f"parallelism_config.{name}"
    return name


def environment(facts: Facts, *, always: bool = False) -> None:
    """Processes as ms-swift and LLaMA-Factory take them from the environment."""
    each, nodes, cards = facts.env.get("NPROC_PER_NODE"), facts.env.get("NNODES"), len(_visible(facts))
    if cards and (each.startswith("$") if each else always):
        each = str(cards)  # one process for each card that it sees
    if each is not None:
        _count(facts, "~gpus_per_node", each, "NPROC_PER_NODE")
    elif cards > 1:
        facts.put("~cards_seen", cards, "CUDA_VISIBLE_DEVICES")
    else:
        facts.default("~gpus_per_node", 1, "a launch without NPROC_PER_NODE")
    if nodes is not None:
        _count(facts, "~nodes", nodes, "NNODES")


def spread(facts: Facts) -> None:
    """One process that sees several cards spreads the layers of transformers' modules over them."""
    cards = facts.get("~cards_seen", 1)
    if cards == 1:
        return
    if facts.get("task", "train") in ("train", "inference"):
        facts.put("hardware.gpus", cards, facts.where("~cards_seen"))
        facts.put("loading.device_map", "auto", facts.where("~cards_seen"))
    else:
        facts.put("~world", 1, facts.where("~cards_seen"))
        facts.unused.append(f"CUDA_VISIBLE_DEVICES: one process spreads the model's layers over {cards} cards; one card is counted")


def cards_seen(facts: Facts) -> None:
    """Cards that a process sees which starts no others, or what is started on each."""
    each = facts.env.get("NPROC_PER_NODE")
    if each is not None:
        _count(facts, "~gpus_per_node", each, "NPROC_PER_NODE")
    elif cards := len(_visible(facts)):
        facts.put("~cards_seen", cards, "CUDA_VISIBLE_DEVICES")


def processes(facts: Facts, own: Words, *, each: Sequence[str], nodes: Sequence[str]) -> None:
    """Processes of a node, and nodes, by what a launcher calls them."""
    for fact, names in (("~gpus_per_node", each), ("~nodes", nodes)):
        value = own.get(*names)
        if value is True or str(value).startswith("-"):
            raise InputError(f"--{names[0]} has no value; accepted: a number of processes", where="command")
        if value is not None:
            _count(facts, fact, str(value), f"--{names[0]}")


def every_card(facts: Facts, name: str) -> None:
    """Of a launcher that starts a process on every card that it sees, where it was not told how many."""
    if {"~world", "~gpus_per_node", "hardware.gpus"} & set(facts.found):
        return
    numbered = [card for card in _visible(facts) if card.strip().isdigit()]
    if numbered:
        facts.put("~gpus_per_node", len(numbered), "CUDA_VISIBLE_DEVICES")
    else:
        facts.unused.append(f"{name}: starts a process on every card that it finds at launch; give --gpus")


def _visible(facts: Facts) -> list[str]:
    """Cards that ``CUDA_VISIBLE_DEVICES`` names."""
    return [card for card in facts.env.get("CUDA_VISIBLE_DEVICES", "").split(",") if card.strip()]


def _count(facts: Facts, fact: str, text: str, where: str) -> None:
    if text.isdigit() and int(text) > 0:
        facts.put(fact, int(text), where)
    elif text in ("gpu", "auto") or ":" in text or text.startswith("$"):
        facts.unused.append(f"{where} {text}: a number that is found out at launch; give --gpus")
    else:
        raise InputError(f"{where} is {text!r}; accepted: a number of processes", where="command")


__all__ = ["accelerate", "cards_seen", "deepspeed", "environment", "every_card", "processes", "spread", "torchrun", "trl"]
