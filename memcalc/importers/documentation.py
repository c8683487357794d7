"""docs/importers.md from the tables of keys: ``python -m memcalc.importers.documentation > docs/importers.md`` (`make docs`).

What a rule does with its key is found by trying it with values of every kind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

from memcalc.errors import InputError
from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.format import PACKAGE, Format, formats, write
from memcalc.importers.rules import names

HEAD = """# Files and commands of other frameworks

This file is made by `make docs` from the tables in `memcalc/importers/formats`. A file is known by its keys, whatever it is called; several add up, and
`--explain-inputs` shows where each value came from. Precedence: flag > command > trainer's file > adapter > accelerate's file > DeepSpeed JSON > default of
the framework.

- *Counts*: the key, and what it becomes: a key of the run file, or, in italics, what several keys say together.
- *Listed*: bears on memory and is not counted; the estimate names it with its file and line when it is set.
- *Assumed*: the default of the framework, for the version that is named; the estimate says so when it uses one.
- *Ignored*: known not to bear on memory, and passed over silently. Any other key is listed.

A Python script (`.py`) is read by its calls of transformers, PEFT, TRL, Unsloth and vLLM, as the file of one of these; it is parsed, never run, and what it
does not write down is listed.

A launch command is found behind `sudo`, `nohup`, `numactl`, `uv run`, `conda run`, `srun`, `mpirun`, `ray job submit --`, `docker run`, `bash -c` and
their kin (`memcalc check -- docker run … vllm/vllm-openai --model …`), with the variables that stand before it. Of a shell script
(`memcalc check train.sh`, or `-- bash train.sh 8` with its arguments) variables, arrays, sums (`$((BATCH / GPUS))`) and the launch are read, without following
conditions and loops: nothing is run.

A file that a launch names is looked for from the working directory, and beside the file that names it. Where it is not there, what frameworks ship under its
name stands in, and the estimate says so: `ds_z3_config.json` and `accelerate/fsdp_config.yaml` of LLaMA-Factory, `zero2` of ms-swift,
`deepspeed_configs/zero3_bf16.json` of axolotl, `scripts/zero2.json` of LLaVA, `accelerate_configs/deepspeed_zero3.yaml` of TRL (`--accelerate_config zero3`),
`llama3_1/8B_full` of torchtune.

Of a compose file, or a Kubernetes manifest (`memcalc check compose.yaml`, `--from pod.yaml`), the one container counts whose command launches something
that memcalc reads: its words behind what the image starts, with the values of its variables.
"""
SAMPLES = (
    *(2, True, False, 0.5, {"enabled": True}, ["x"]),
    *names("full bf16 lora dpo cpu fsdp2 full_shard no nf4 transformer_based_wrap backward_pre 1f1b adamw alltoall gae always bfloat16 te"),
    *names("MULTI_GPU FSDP x.llama3_8b flash qlora"),
)


def text() -> str:
    """The whole document."""
    return "\n".join([HEAD, *(part for format_ in sorted(formats(), key=lambda format_: format_.title.lower()) for part in _section(format_))])


def effects(format_: Format, key: str, rule: Rule) -> tuple[set[str], bool]:
    """The facts that a key becomes, and whether some of its values are listed as not used."""
    if isinstance(rule, str):
        return {rule}, False
    found, listed = set[str](), False
    for sample in SAMPLES:
        facts = Facts()
        try:
            write(facts, format_, Entry(key.replace("*", "x"), sample, "sample"))
        except (InputError, ValueError, TypeError):
            continue
        found |= set(facts.found)
        found |= {"sharding.deepspeed"} if facts.links else set()
        listed = listed or bool(facts.unused)
    return found, listed


def _section(format_: Format) -> Iterator[str]:
    counted: list[tuple[str, str]] = []
    listed: list[str] = []
    for key, rule in format_.keys.items():
        if key.startswith("~"):
            continue
        facts, aside = effects(format_, key, rule)
        if facts:
            counted.append((key, ", ".join(sorted(map(_shown, facts)))))
        elif aside:
            listed.append(key)
    yield f"## {format_.title}\n"
    writes = hasattr(import_module(f"{PACKAGE}.{format_.name}"), "export")
    yield f"Checked against {format_.version}.{f' Written by `memcalc export --to {format_.name}`.' if writes else ''} {format_.notes}".rstrip() + "\n"
    yield "| counts | as |\n|---|---|"
    yield "\n".join(f"| `{key}` | {facts} |" for key, facts in counted) + "\n"
    if format_.defaults:
        yield "Assumed: " + ", ".join(f"{_shown(name)} `{value}`" for name, value in format_.defaults.items()) + ".\n"
    if listed:
        yield "Listed: " + ", ".join(f"`{key}`" for key in listed) + ".\n"
    if format_.ignored:
        yield "Ignored: " + ", ".join(f"`{key}`" for key in sorted(dict.fromkeys(format_.ignored))) + ".\n"


def _shown(name: str) -> str:
    return f"*{name[1:].replace('_', ' ')}*" if name.startswith("~") else f"`{name}`"


if __name__ == "__main__":
    sys.stdout.write(text())
