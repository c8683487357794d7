"""A program's own arguments, the format that they are of, and the files that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memcalc.importers.argv import OPEN, Words, as_source, split
from memcalc.importers.facts import COMMAND, Facts, Link
from memcalc.importers.format import Format, ignores, load, normal, read_into, recognised
from memcalc.importers.links import located, name_deepspeed
from memcalc.importers.rules import names
from memcalc.importers.shell import ELEMENTS
from memcalc.importers.source import read_source

MARKS = (
    ("alpaca_lora", ("base_model+cutoff_len", "base_model+micro_batch_size")),
    ("llama_cookbook", ("batch_size_training", "enable_fsdp", "peft_method", "fsdp_config.pure_bf16")),
    ("megatron", names("tensor_model_parallel_size pipeline_model_parallel_size use_distributed_optimizer micro_batch_size train.micro_batch_size "
     "train.global_batch_size train.train_iters model.tensor_model_parallel_size model.pipeline_model_parallel_size model.seq_length "
     "model.micro_batch_size model.global_batch_size")),
    ("llamafactory", ("finetuning_type", "cutoff_len")),
    ("ms_swift", ("tuner_type", "train_type", "split_dataset_ratio")),
    ("deepspeed_chat", ("actor_model_name_or_path",)),
    ("deepspeed_chat_sft", ("lora_dim", "data_split", "only_optimize_lora", "num_padding_at_beginning")),
    ("openrlhf", ("zero_stage", "ds.zero_stage", "micro_train_batch_size")),
    ("verl", ("actor_rollout_ref.model.path",)),
    ("automodel", names("step_scheduler.local_batch_size step_scheduler.global_batch_size step_scheduler.max_steps model.pretrained_model_name_or_path")),
    ("torchtitan", ("training.local_batch_size", "parallelism.tensor_parallel_degree", "activation_checkpoint.mode")),
)  # fmt: skip
"""Formats by names of arguments that no other has, alone or two together."""
FILES = frozenset(names("config c cfg config_file config_yaml job.config_file job.config_path yaml_cfg config_path train_args_file extra_llm_api_options"))
"""Flags that name a configuration of the program itself."""
OWN_MEANING = {"llamacpp": ("c",), "torchtitan": ("config",)}
"""Of these the flags that mean something else to a format, where no file stands behind them."""
OWN_FILES = ("torchtune", "torchtitan", "vllm", "sglang", "trtllm", "nemo_rl", "ms_swift", "ms_swift_serve", "automodel", "litgpt", "unsloth")
"""Formats whose files are of the same format."""
SHARED_FILES = ("deepspeed", "accelerate", "peft", "trainer")
"""Formats of files that say nothing of whose arguments stand beside them."""
SHORT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size", "q": "quantization"}
ENDINGS = (".yaml", ".yml", ".json", ".toml")


def by_keys(words: Words) -> str:
    """The format of a script's arguments, by their names, or by that of a file that they name."""
    keys = {normal(key) for key, _, _ in words.given}
    return _by_file(words) or next((name for name, marks in MARKS if any(keys >= set(mark.split("+")) for mark in marks)), "trainer")


def _by_file(words: Words) -> str | None:
    for path, shown in named_files(words):
        found = located(Link(path, shown, "."))
        if found is not None:
            name = recognised(read_source(found)).name
            return None if name in SHARED_FILES else name
    return None


def named_files(words: Words) -> Iterator[tuple[str, str]]:
    """Files of a program's own that its words name, and by what."""
    for key, value, shown in words.given:
        if normal(key) in FILES and isinstance(value, str) and value.endswith(ENDINGS):
            yield value, shown
    for word in words.plain:
        if word.endswith(ENDINGS):
            yield word, "command"


def read_arguments(facts: Facts, words: Sequence[str] | Words, format_name: str, *, positional: bool = False) -> None:
    """A program's own arguments, and the files that it names."""
    format_ = load(format_name)
    parsed = words if isinstance(words, Words) else split(words)
    _name_files(facts, parsed, format_, positional=positional)
    unknown = dict.fromkeys(word.replace(ELEMENTS, "") for word in parsed.plain if OPEN.fullmatch(word))
    facts.unused += [f"{word}: arguments that nothing here says" for word in unknown]
    kept = {key for key in OWN_MEANING.get(format_name, ()) if not str(parsed.get(key)).endswith(ENDINGS)}
    parsed = parsed.without(*(FILES - kept))
    if format_name == "vllm":
        parsed = Words(tuple((_long(key, shown), value, shown) for key, value, shown in parsed.given), parsed.plain)
    if format_name in ("vllm", "sglang"):
        parsed = Words(tuple((_whole(key, shown, format_), value, shown) for key, value, shown in parsed.given), parsed.plain)
    if "~started_by_deepspeed" in facts.found and format_name == "trainer":
        parsed = _plain_deepspeed(facts, parsed)
    facts.rank = COMMAND
    source = as_source(parsed, format_)
    facts.overrides = source.data
    read_into(facts, source, format_, rank=COMMAND)


def _whole(key: str, shown: str, format_: Format) -> str:
    """A flag of which only the beginning is written, as argparse takes it where one flag alone begins so."""
    name = normal(key)
    if not shown.startswith("--") or "." in name or name in format_.keys or ignores(format_, name):
        return key
    longer = [known for known in (*format_.keys, *format_.ignored) if known.startswith(name) and "." not in known and "*" not in known]
    return longer[0] if len(longer) == 1 else key


def _long(key: str, shown: str) -> str:
    return key if shown.startswith("--") else SHORT.get(key, key)


def _name_files(facts: Facts, parsed: Words, format_: Format, *, positional: bool) -> None:
    for path, shown in named_files(parsed):
        own = positional if shown == "command" else format_.name in OWN_FILES
        facts.links.append(Link(path, shown, ".", format_.name if own else ""))


def _plain_deepspeed(facts: Facts, parsed: Words) -> Words:
    """``--deepspeed --deepspeed_config f.json``: the program starts DeepSpeed itself, which drops "auto"."""
    path = parsed.get("deepspeed_config")
    if isinstance(path, str):
        name_deepspeed(facts, path, where="--deepspeed_config", key="--deepspeed_config")
        facts.put("~auto_by", "deepspeed", "the script starts DeepSpeed")
        return parsed.without("deepspeed_config", "deepspeed")
    return parsed


__all__ = ["ENDINGS", "by_keys", "named_files", "read_arguments"]
