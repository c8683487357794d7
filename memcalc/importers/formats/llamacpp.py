"""llama.cpp: flags of ``llama-server`` and ``llama-cli``."""

from __future__ import annotations

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


HOST = "weights that stay on the host by name"
KEYS: dict[str, Rule] = {
    "m": "model",
    "model": "model",
    "hf*": unless(why="the file behind it: give it with -m"),
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
