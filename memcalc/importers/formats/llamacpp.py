"""llama.cpp: flags of ``llama-server`` and ``llama-cli``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule, number
from memcalc.importers.format import Format
from memcalc.importers.formats.vllm import serving
from memcalc.importers.rules import names, unless, whole_number

VERSION = "llama.cpp of November 2025"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its own names."""
    return any(key in keys for key in ("n_gpu_layers", "ctx_size", "cache_type_k"))


def layers(facts: Facts, entry: Entry) -> None:
    """Layers on the cards; all and auto leave it open."""
    count = number(entry.value)
    if count is not None and count >= 0:
        facts.put("serving.n_gpu_layers", int(count), entry.where)
    elif count is None and entry.word not in ("all", "auto"):
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: a number, all or auto", where=entry.where)


def flash(facts: Facts, entry: Entry) -> None:
    """Flash attention; auto takes it where it can be."""
    facts.put("serving.flash_attn", value=entry.word == "auto" or entry.is_on, where=entry.where)


def context(facts: Facts, entry: Entry) -> None:
    """Tokens of all sequences together; 0 is the model's own length."""
    if entry.number > 0:
        facts.put("~context", entry.number, entry.where)


TYPE = r"(?:UD-)?(?P<type>I?Q\d(?:_[01]|_K(?:_[SMLX]+)?|_[SMX]+)|BF16|F16|F32|MXFP4)"
FILE = re.compile(rf"(?P<model>.+?)[-._]{TYPE}(?:-\d+-of-\d+)?\.gguf", re.IGNORECASE)
"""A file by the customary name: a model's, and how its weights are stored."""
REPOSITORY = re.compile(rf"(?P<model>[^:]+)(?::{TYPE})?", re.IGNORECASE)
USUAL = "q4_k_m"
"""What llama.cpp takes of a repository that is named without a type (common/download.cpp)."""


def model(facts: Facts, entry: Entry) -> None:
    """A file; where it lies on another machine its name says what it holds."""
    name = str(entry.value)
    found = FILE.fullmatch(name)
    if found is None or os.path.exists(os.path.expanduser(name)):  # noqa: PTH110, PTH111
        facts.put("model", name, entry.where)
        return
    facts.put("model", found["model"], entry.where)
    facts.put("quantization", found["type"].lower(), entry.where)
    facts.assumed.append(f"model {found['model']} in {found['type'].lower()}: {name} is not here, and is taken by its name")


def repository(facts: Facts, entry: Entry) -> None:
    """``-hf org/name-GGUF:Q4_K_M``."""
    found = REPOSITORY.fullmatch(str(entry.value))
    if found is None:
        raise InputError(f"{entry.key} is {entry.value!r}; accepted: a repository, with a type such as :Q4_K_M", where=entry.where)
    facts.put("model", found["model"], entry.where)
    if found["type"]:
        facts.put("quantization", found["type"].lower(), entry.where)
    else:
        facts.default("quantization", USUAL, VERSION)


HOST = "weights that stay on the host by name"
KEYS: dict[str, Rule] = {
    "m": model,
    "model": model,
    **dict.fromkeys(("hf", "hfr", "hf_repo"), repository),
    "hff": unless(why="the file of that name in the repository"),
    "hf_file": unless(why="the file of that name in the repository"),
    "c": context,
    "ctx_size": context,
    "np": whole_number("micro_batch"),
    "parallel": whole_number("micro_batch"),
    "ngl": layers,
    "gpu_layers": layers,
    "n_gpu_layers": layers,
    "ctk": serving("cache_type_k"),
    "cache_type_k": serving("cache_type_k"),
    "ctv": serving("cache_type_v"),
    "cache_type_v": serving("cache_type_v"),
    "ub": serving("ubatch_size", whole=True),
    "ubatch_size": serving("ubatch_size", whole=True),
    "fa": flash,
    "flash_attn": flash,
    "sm": unless("layer", why="how layers are split"),
    "split_mode": unless("layer", why="how layers are split"),
    "ts": unless(why="uneven shares of the cards"),
    "tensor_split": unless(why="uneven shares of the cards"),
    "ot": unless(why=HOST),
    "override_tensor": unless(why=HOST),
    "cmoe": unless(why=HOST),
    "cpu_moe": unless(why=HOST),
    "ncmoe": unless(why=HOST),
    "n_cpu_moe": unless(why=HOST),
    "nkvo": unless(why="a cache on the host"),
    "no_kv_offload": unless(why="a cache on the host"),
    "md": unless(why="a second model that guesses"),
    "model_draft": unless(why="a second model that guesses"),
    "mm": unless(why="the image encoder"),
    "mmproj": unless(why="the image encoder"),
    "lora*": unless(why="adapters"),
}


def finish(facts: Facts) -> None:
    """It serves, and its context is divided among its sequences."""
    facts.put("task", "inference", VERSION)
    facts.put("code", "llamacpp", VERSION)
    if "~context" in facts.found:
        facts.put("seq_len", facts.get("~context", 0) // facts.get("micro_batch", 1), facts.where("~context"))


FORMAT = Format(
    name="llamacpp",
    title="llama.cpp flags",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "host port t threads tb threads_batch b batch_size a alias api_key* chat_template* jinja temp temperature top_k top_p min_p s seed p prompt f file n "
        "predict n_predict cont_batching cb mlock mmap no_mmap numa v verbose log_* lv metrics slots props no_webui rope_* yarn_* mg main_gpu dev device "
        "kvu kv_unified cache_reuse warmup no_warmup cnv conversation i interactive e escape keep repeat_penalty timeout to reasoning_*"
    ),
    finish=finish,
    order=66,
    notes="`-c` is of all sequences of `-np` together.",
)  # fmt: skip
