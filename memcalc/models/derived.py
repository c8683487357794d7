"""Models that are called after one of the catalogue: its repository's name, or another spelling of it, and what was made of it.

``Qwen3-32B-autoround-4bit-gptq``, ``somebody/Meta-Llama-3.1-8B-Instruct-AWQ-INT4``, ``unsloth/llama-3-8b-bnb-4bit``. Only a name that is
explained to its last letter is taken, and the model then says in its assumptions what it was taken for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.models import catalogue

Made = Callable[[int, int], Mapping[str, Any]]


class Derived(NamedTuple):
    """What a name is taken for.

    Attributes:
        entry: of the catalogue.
        quantization: as a config.json would say it; empty: none, whatever the entry's says; None: as there.
        said: for the assumptions.
    """

    entry: str
    quantization: Mapping[str, Any] | None
    said: str


PLAIN = "instruct|chat|base|it|hf|thinking|text|unsloth|dynamic|quantized|marlin|inc|sym|kv|qat|ct|mirror"
"""Words that change no size."""
_WORD = re.compile(rf"(?:{PLAIN})(?= |$)")
_FORMAT = re.compile(r"(gptq|awq|auto ?round(?: gptq)?|bnb|bf 16|fp 16|fp 8|(?:nv)?fp 4|mxfp 4|w 4 a 16|w 8 a 16|w 8 a 8|gguf)(?= |$)")
_BITS = re.compile(r"(?:int )?([2348])(?: bit| b)?(?= |$)")
_GROUP = re.compile(r"(?:g (32|64|128)|(32|64|128) g)(?= |$)")


def _compressed(bits: int, *, form: str, strategy: str) -> Made:
    """compressed-tensors as llm-compressor writes them."""

    def made(_: int, group: int) -> Mapping[str, Any]:
        weights = {"num_bits": bits, "strategy": strategy, "symmetric": True, **({"group_size": group} if strategy == "group" else {})}
        groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
        return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}

    return made


def _bnb(bits: int, _: int) -> Mapping[str, Any]:
    four = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    return {"quant_method": "bitsandbytes", **(four if bits == 4 else {"load_in_8bit": True})}


FORMATS: dict[str, tuple[tuple[int, ...], Made]] = {
    "gptq": ((4, 2, 3, 8), lambda bits, group: {"quant_method": "gptq", "bits": bits, "group_size": group}),
    "awq": ((4,), lambda bits, group: {"quant_method": "awq", "bits": bits, "group_size": group, "zero_point": True}),
    "bnb": ((4, 8), _bnb),
    "fp 8": ((), lambda *_: {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}),
    "nvfp 4": ((), lambda *_: {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}),
    "mxfp 4": ((), lambda *_: {"quant_method": "modelopt", "quant_algo": "MXFP4", "exclude_modules": ["lm_head"]}),
    "w 4 a 16": ((), _compressed(4, form="pack-quantized", strategy="group")),
    "w 8 a 16": ((), _compressed(8, form="pack-quantized", strategy="group")),
    "w 8 a 8": ((), _compressed(8, form="int-quantized", strategy="channel")),
    "bf 16": ((), lambda *_: {}),
    "fp 16": ((), lambda *_: {}),
}
"""How names say that weights are stored: the bits that may stand beside it, the usual first, and what the config.json of such a model says."""
GROUP = 128
"""Inputs that share a scale, where a name does not say."""
SAME = {"fp 4": "nvfp 4", "autoround": "gptq", "auto round": "gptq", "autoround gptq": "gptq", "auto round gptq": "gptq"}
"""AutoRound packs as GPTQ does, and NVIDIA calls its format FP4 in names."""


@cache
def derived(name: str) -> Derived | None:
    """What a name is taken for, if a model of the catalogue and customary words explain all of it.

    Args:
        name: ``org/name``, a folder's path or its last part.

    Raises:
        InputError: the same words begin the names of several models.

    >>> derived("Qwen3-32B-autoround-4bit-gptq").entry
    'qwen3-32b'
    """
    found = _beginning(_last_part(name))
    if found is None:
        return None
    entry, rest = found
    how = _explained(" ".join(rest))
    if how is None:
        return None
    words, made = how
    return Derived(entry, made, f"model {name}: taken by its name for {entry}{words}; a config.json of its own is not at hand")


def nearest(name: str) -> str:
    """What to give instead of a name that begins as one of the catalogue, as a hint; empty where none does."""
    try:
        found = _beginning(_last_part(name))
    except InputError:
        return ""
    if found is None or not found[1]:
        return ""
    rest = " ".join(found[1])
    named = next((word for word in ("gptq", "awq", "fp8", "mxfp4") if word in rest.replace(" ", "")), "")
    how = f" --quantization {named}" if named else " with --quantization gptq, awq, nf4, …" if _BITS.match(rest) else ""
    return f"did you mean {found[0]}{how}?"


def _last_part(name: str) -> str:
    """Of a path or repository; of one in a cache of the Hub, the repository's (``models--Qwen--Qwen3-8B/snapshots/…``)."""
    cached = re.search(r"models--[\w.-]+?--([\w.-]+)", name)
    last = cached.group(1) if cached else name.rstrip("/").rpartition("/")[2]
    return last.replace("___", ".")  # as ModelScope spells a dot in folders


def _beginning(name: str) -> tuple[str, list[str]] | None:
    """The entry whose name begins this one, by the most words, and the words behind it."""
    if not re.fullmatch(r"[\w .-]+", name):
        return None
    parts = catalogue.parts(name)
    best: dict[int, set[str]] = {}
    for entry in catalogue.entries():
        for spelling in {catalogue.parts(known) for known in catalogue.spellings(entry)}:
            if spelling and parts[: len(spelling)] == spelling:
                best.setdefault(len(spelling), set()).add(entry.name)
    if not best:
        return None
    most = max(best)
    if len(best[most]) > 1:
        raise InputError(f"several models are called {name!r}: {', '.join(sorted(best[most]))}", where="model")
    return best[most].pop(), list(parts[most:])


def _explained(rest: str) -> tuple[str, Mapping[str, Any] | None] | None:
    """Words behind a model's name as a sentence's end and a quantization; None where one of them is not known."""
    form, bits, group = "", 0, 0
    while rest:
        if match := _FORMAT.match(rest):
            found = SAME.get(match.group(1), match.group(1))
            if form not in ("", found):
                return None
            form = found
        elif match := _GROUP.match(rest):
            group = int(match.group(1) or match.group(2))
        elif match := _BITS.match(rest):
            bits = int(match.group(1))
        else:
            match = _WORD.match(rest)
        if match is None:
            return None
        rest = rest[match.end() :].lstrip()
    return _meant(form, bits, group)


def _meant(form: str, bits: int, group: int) -> tuple[str, Mapping[str, Any] | None] | None:
    if form in ("", "gguf"):
        gguf = "; in what a GGUF file stores its weights is said by quantization (q4_k_m, …)" if form else ""
        return None if (bits or group) and not form else (gguf, {} if form else None)
    widths, made = FORMATS[form]
    if (bits and bits not in (widths or (int(re.findall(r"\d+", form)[0]),))) or (form == "bnb" and not bits):
        return None
    bits, group = bits or (widths[0] if widths else 0), group or GROUP
    data = made(bits, group)
    width = f" in {bits} bits" if widths else ""
    shared = f", groups of {group}" if "group_size" in str(data) else ""
    return f" with weights in {form.replace(' ', '')}{width}{shared}", data


__all__ = ["Derived", "derived", "nearest"]
