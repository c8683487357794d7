"""A launch command as it stands in argv: its launcher, the program, the files that it names. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import launchers
from memcalc.importers.argv import Words, as_source, split, variables
from memcalc.importers.facts import COMMAND, Facts, Link
from memcalc.importers.format import Format, load, normal, read_into
from memcalc.importers.links import name_deepspeed

MODULES = (
    ("openrlhf.", "openrlhf"), ("verl.trainer.fsdp_sft", "verl_sft"), ("verl.", "verl"), ("torchtitan", "torchtitan"),
    ("vllm.", "vllm"), ("sglang.", "sglang"), ("axolotl.", "axolotl"),
    ("llamafactory.", "llamafactory"), ("swift.", "ms_swift"), ("trl.", "trainer"), ("torch.distributed", ""),
)  # fmt: skip
"""Modules behind ``-m`` by how they begin, and the format of their arguments."""
SCRIPTS = (
    (r"pretrain_\w+\.py", "megatron"), (r"(run_)?train_gpt\.py", "megatron"), (r"main_(ppo|grpo)\.py", "verl"),
    (r"fsdp_sft_trainer\.py", "verl_sft"), (r"run_grpo\w*\.py", "nemo_rl"),
    (r"launch_server(\.py)?", "sglang"), (r"api_server(\.py)?", "vllm"),
)  # fmt: skip
OPENRLHF = {"train_dpo": "dpo", "train_rm": "reward", "train_kd": "distill", "train_kto": "kto", "train_ppo_ray": "ppo", "train_ppo": "ppo"}
"""Tasks by the module of OpenRLHF."""
FILES = frozenset(("config", "config_file", "job.config_file", "job.config_path", "yaml_cfg", "config_path", "extra_llm_api_options"))
"""Flags that name a configuration of the program itself."""
OWN_FILES = ("torchtune", "torchtitan", "vllm", "sglang", "trtllm", "nemo_rl")
"""Formats whose files are of the same format."""
SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "q": "quantization"}
ENDINGS = (".yaml", ".yml", ".json", ".toml")
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
    words = [word for word in argv if word.strip() and word not in ("\\", "\\\n")]
    env, words = variables(shlex.split(words[0]) if len(words) == 1 and " " in words[0] else words)
    facts.env = {**facts.env, **env}
    for name in ALLOCATOR:
        if "expandable_segments:true" in env.get(name, "").replace(" ", "").lower():
            facts.put("expandable_segments", value=True, where=name)
    facts.rank = COMMAND
    if not words:
        raise InputError("no program stands in the command", where="command")
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
    elif name in ("srun", "mpirun", "numactl", "uv", "ray"):
        _behind(facts, rest, name)
    elif name in ("bash", "sh", "zsh", "sbatch") or name.endswith(".sh"):
        raise InputError(f"{words[0]}: a shell script is not read; give the launch command that it runs", where="command")
    elif words[0].startswith("--"):
        _arguments(facts, words, _by_keys(split(words)))
    else:
        _script(facts, words)


def _behind(facts: Facts, words: list[str], name: str) -> None:
    """What a job starter runs: from the first word that is a known program."""
    known = re.compile(r"(python[\d.]*|torchrun|deepspeed|accelerate|llamafactory-cli|axolotl|swift|megatron|tune|vllm|sglang|trtllm-serve)")
    for at, word in enumerate(words):
        if known.fullmatch(word.rpartition("/")[2].lower()):
            facts.assumed.append(f"{name}: what it starts is counted on the cards that the rest of the command names")
            _program(facts, words[at:])
            return
    raise InputError(f"no program that is known stands behind {name}", where="command")


def _python(facts: Facts, words: list[str]) -> None:
    while words and words[0] in ("-u", "-O", "-B", "-W", "-X"):
        words = words[2:] if words[0] in ("-W", "-X") else words[1:]
    if words[:1] == ["-m"] and words[1:2] and words[1].startswith(("torch.distributed.run", "torch.distributed.launch")):
        _script(facts, launchers.torchrun(facts, words[2:]))
        return
    if words[:2] == ["-m", "accelerate.commands.launch"]:
        _script(facts, launchers.accelerate(facts, ["launch", *words[2:]]))
        return
    _script(facts, words, alone=True)


def _script(facts: Facts, words: list[str], *, alone: bool = False) -> None:
    """A script, or a module behind ``-m``, and its arguments."""
    module = words[:1] == ["-m"]
    words = words[1:] if module else words
    if not words:
        raise InputError("no script stands in the command", where="command")
    name, rest = words[0], words[1:]
    if module:
        found = next((format_ for prefix, format_ in MODULES if name.startswith(prefix)), None)
    else:
        last = name.rpartition("/")[2]
        found = next((format_ for pattern, format_ in SCRIPTS if re.fullmatch(pattern, last)), None)
    format_name = found or _by_keys(split(rest))
    if name.startswith("openrlhf."):
        facts.put("task", OPENRLHF.get(name.rpartition(".")[2], "train"), name)
    if alone and format_name in ("trainer", "llamafactory", "ms_swift", "axolotl"):
        facts.put("~world", 1, "a single process")
    _arguments(facts, rest, format_name)


def _by_keys(words: Words) -> str:
    """The format of a script's arguments, by their names."""
    keys = {normal(key) for key, _, _ in words.given}
    tests: tuple[tuple[str, set[str]], ...] = (
        ("megatron", {"tensor_model_parallel_size", "pipeline_model_parallel_size", "use_distributed_optimizer", "micro_batch_size"}),
        ("llamafactory", {"finetuning_type", "cutoff_len"}),
        ("ms_swift", {"tuner_type", "train_type", "split_dataset_ratio"}),
        ("openrlhf", {"zero_stage", "ds.zero_stage", "micro_train_batch_size"}),
        ("verl", {"actor_rollout_ref.model.path"}),
        ("deepspeed_chat", {"actor_model_name_or_path"}),
    )
    return next((name for name, marks in tests if keys & marks), "trainer")


def _arguments(facts: Facts, words: Sequence[str], format_name: str, *, positional: bool = False) -> None:
    """A program's own arguments, and the files that it names."""
    format_ = load(format_name)
    parsed = split(words)
    _name_files(facts, parsed, format_, positional=positional)
    parsed = parsed.without(*FILES)
    if format_name == "vllm":
        parsed = Words(tuple((_long(key, shown), value, shown) for key, value, shown in parsed.given), parsed.plain)
    if "~started_by_deepspeed" in facts.found and format_name == "trainer":
        parsed = _plain_deepspeed(facts, parsed)
    facts.rank = COMMAND
    source = as_source(parsed, format_)
    facts.overrides = source.data
    read_into(facts, source, format_, rank=COMMAND)


def _long(key: str, shown: str) -> str:
    return key if shown.startswith("--") else SHORT.get(key, key)


def _name_files(facts: Facts, parsed: Words, format_: Format, *, positional: bool) -> None:
    for key, value, shown in parsed.given:
        if normal(key) in FILES and isinstance(value, str) and value.endswith(ENDINGS):
            facts.links.append(Link(value, shown, ".", format_.name if format_.name in OWN_FILES else ""))
    for word in parsed.plain:
        if word.endswith(ENDINGS):
            facts.links.append(Link(word, "command", ".", format_.name if positional else ""))


def _plain_deepspeed(facts: Facts, parsed: Words) -> Words:
    """``--deepspeed --deepspeed_config f.json``: the program starts DeepSpeed itself, which drops "auto"."""
    path = parsed.get("deepspeed_config")
    if isinstance(path, str):
        name_deepspeed(facts, path, where="--deepspeed_config", key="--deepspeed_config")
        facts.put("~auto_by", "deepspeed", "the script starts DeepSpeed")
        return parsed.without("deepspeed_config", "deepspeed")
    return parsed


# ---------------------------------------------------------------------- programs of their own
def _llamafactory(facts: Facts, words: list[str]) -> None:
    if words[:1] not in (["train"], ["export"], ["chat"], ["api"]):
        raise InputError(f"llamafactory-cli {words[0] if words else ''}: `llamafactory-cli train` was expected", where="command")
    if words[0] != "train":
        raise InputError(f"llamafactory-cli {words[0]} does not train", where="command")
    launchers.environment(facts, always=True)
    _arguments(facts, words[1:], "llamafactory", positional=True)


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
    _arguments(facts, rest, "axolotl", positional=True)


def _accelerate_arguments(facts: Facts, words: list[str]) -> list[str]:
    return launchers.accelerate(facts, ["launch", *words])


SERVES = ("infer", "deploy", "rollout", "eval", "app")
"""What ms-swift does with a model that it does not train."""


def _swift(facts: Facts, words: list[str]) -> None:
    if words[:1] and words[0] in SERVES:
        launchers.cards_seen(facts)
        if words[0] == "rollout":
            facts.put("~backend", "vllm", "swift rollout")
        _arguments(facts, words[1:], "ms_swift_serve", positional=True)
        return
    if words[:1] not in (["sft"], ["rlhf"], ["pt"]):
        raise InputError(f"swift {words[0] if words else ''}: it neither trains nor serves; sft, pt, rlhf, {', '.join(SERVES)} are read", where="command")
    launchers.environment(facts)
    _arguments(facts, words[1:], "ms_swift", positional=True)


def _megatron(facts: Facts, words: list[str]) -> None:
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
    _arguments(facts, rest[1:], "torchtune")


def _vllm(facts: Facts, words: list[str]) -> None:
    if words[:1] != ["serve"]:
        raise InputError(f"vllm {words[0] if words else ''}: `vllm serve` was expected", where="command")
    rest = words[1:]
    if rest and not rest[0].startswith("-"):
        facts.put("model", rest[0], "vllm serve")
        rest = rest[1:]
    _arguments(facts, rest, "vllm")


def _sglang(facts: Facts, words: list[str]) -> None:
    _arguments(facts, words[1:] if words[:1] in (["serve"], ["launch_server"]) else words, "sglang")


def _trtllm(facts: Facts, words: list[str]) -> None:
    rest = words[1:] if words[:1] == ["serve"] else words
    if rest and not rest[0].startswith("-"):
        facts.put("model", rest[0], "trtllm-serve")
        rest = rest[1:]
    _arguments(facts, rest, "trtllm")


def _llamacpp(facts: Facts, words: list[str]) -> None:
    _arguments(facts, words, "llamacpp")


def _trl(facts: Facts, words: list[str]) -> None:
    if not words:
        raise InputError("trl: a trainer such as sft was expected", where="command")
    _arguments(facts, words[1:], "trainer")
    if words[0] in ("dpo", "grpo", "kto", "rloo", "reward"):
        facts.put("task", words[0], f"trl {words[0]}")


OWN: dict[str, Any] = {
    "llamafactory-cli": _llamafactory,
    "lmf": _llamafactory,
    "axolotl": _axolotl,
    "swift": _swift,
    "megatron": _megatron,
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
