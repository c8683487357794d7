"""``quantization_config`` of a config.json (or ``hf_quant_config.json`` beside it) → `memcalc.specs.quantization.Quantization`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from memcalc.errors import ModelError, UnknownNameError
from memcalc.specs.quantization import Kind, Quantization, Rule, Scheme

MAX_PATTERN = 200
"""No pattern of module names is longer."""

Reader = Callable[["_File"], Quantization]


class _File:
    """A quantization_config with checked readings."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data, self.where = data, where

    def error(self, message: str) -> ModelError:
        return ModelError(f"quantization_config: {message}", where=self.where)

    def int(self, *keys: str, default: int | None = None) -> int:
        found = next((self.data[key] for key in keys if self.data.get(key) is not None), default)
        if isinstance(found, bool) or not isinstance(found, int):
            raise self.error(f"{keys[0]} is {found!r}; an integer was expected")
        return found

    def flag(self, key: str, *, default: bool = False) -> bool:
        found = self.data.get(key)
        found = default if found is None else found
        if not isinstance(found, bool):
            raise self.error(f"{key} is {found!r}; true or false was expected")
        return found

    def names(self, *keys: str) -> tuple[str, ...] | None:
        found = next((self.data[key] for key in keys if self.data.get(key) is not None), None)
        if found is None:
            return None
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise self.error(f"{keys[0]} is not a list of module names")
        return tuple(found)

    def pattern(self, text: str) -> str:
        """A regular expression that cannot take for ever: short, and with no repetition of what repeats itself."""
        fits = len(text) <= MAX_PATTERN and text.count("*") + text.count("+") <= 6 and not re.search(r"[*+}][^()]*\)[*+{]", text)
        try:
            re.compile(f"(?:{text})|(?:{text})" if fits else "(")  # several are put together like this
        except (re.error, OverflowError, RecursionError):
            raise self.error(f"{text!r} is not a pattern of module names") from None
        return text


def read_quantization(data: Mapping[str, Any], *, where: str) -> Quantization | None:
    """What a config.json says of how its checkpoint is stored; None where it says nothing.

    Args:
        data: the content of config.json.
        where: the file, for messages.

    Raises:
        UnknownNameError: its method is not known.
        ModelError: a value is not what its method has.
    """
    found = data.get("quantization_config", data.get("compression_config"))
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ModelError(f"quantization_config is {found!r}; an object was expected", where=where)
    file = _File(found, where)
    method = found.get("quant_method")
    if method is None and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        method = "bitsandbytes"
    if not isinstance(method, str) or method.replace("_", "-") not in READERS:
        raise UnknownNameError("quant_method", str(method), READERS, where=f"{where}: quantization_config")
    return READERS[method.replace("_", "-")](file)


def from_modelopt(data: Mapping[str, Any]) -> dict[str, Any]:
    """``hf_quant_config.json``, which TensorRT Model Optimizer writes beside config.json, as a quantization_config."""
    found = data.get("quantization")
    return {"quant_method": "modelopt", **(found if isinstance(found, dict) else {})}


# ---------------------------------------------------------------------- patterns
def _skips(file: _File, *keys: str) -> dict[str, Any]:
    """Names as transformers reads them: from the beginning to a module boundary, as a regular expression, or as an ending.

    Where a file names nothing, the output projection stays as it is (transformers/quantizers/base.py, get_keys_to_not_convert).
    """
    names = file.names(*keys)
    return {"skipped": tuple(map(file.pattern, names or ())), "endings": names or (), "plain_head": names is None}


def _wildcards(file: _File, *keys: str) -> dict[str, Any]:
    """Names with ``*`` (Model Optimizer), and ``re:`` before regular expressions (compressed-tensors)."""
    names = file.names(*keys)
    patterns = [name.removeprefix("re:") if name.startswith("re:") else re.escape(name).replace(r"\*", ".*") for name in names or ()]
    return {"skipped": tuple(map(file.pattern, patterns)), "plain_head": names is None}


# ---------------------------------------------------------------------- methods
def _bitsandbytes(file: _File) -> Quantization:
    four = file.flag("load_in_4bit") or file.flag("_load_in_4bit")
    if not four and not (file.flag("load_in_8bit") or file.flag("_load_in_8bit")):
        raise file.error("bitsandbytes with neither load_in_4bit nor load_in_8bit")
    double, kind = file.flag("bnb_4bit_use_double_quant"), str(file.data.get("bnb_4bit_quant_type") or "fp4")
    if four and kind not in ("nf4", "fp4"):
        raise file.error(f"bnb_4bit_quant_type is {kind!r}; nf4 or fp4 was expected")
    name = f"{kind}{' with double quantisation' if double else ''}" if four else "int8 (LLM.int8)"
    scheme = Scheme("nf4", 4, group=64, double_quant=double) if four else Scheme("int8", 8)
    return Quantization("bitsandbytes", name, (Rule(scheme),), stacked=False, **_skips(file, "llm_int8_skip_modules"))


def _gptq(file: _File) -> Quantization:
    bits, group = file.int("bits"), file.int("group_size", default=128)
    if bits not in (2, 3, 4, 8):
        raise file.error(f"bits is {bits}; gptq has 2, 3, 4 and 8")
    dynamic = file.data.get("dynamic") or {}
    if not isinstance(dynamic, dict) or any(not str(key).startswith("-:") for key in dynamic):
        raise file.error("dynamic gives modules bits of their own, which memcalc does not know")
    scheme = Scheme("gptq", bits, group=group, has_order=True)
    skipped = tuple(file.pattern(str(key)[2:]) for key in dynamic)
    return Quantization("gptq", f"gptq {bits}-bit", (Rule(scheme),), skipped=skipped, layers_only=not file.flag("lm_head"))


def _awq(file: _File) -> Quantization:
    bits, version = file.int("bits", "w_bit"), str(file.data.get("version") or "gemm").lower()
    if version not in ("gemm", "gemv", "gemv_fast", "llm-awq"):
        raise file.error(f"version is {version!r}; gemm and gemv are known")
    scheme = Scheme("awq", bits, group=file.int("group_size", "q_group_size", default=128), zero_point=file.flag("zero_point", default=True))
    names = file.names("modules_to_not_convert") or ()
    # AWQ matches a name anywhere (awq/utils/module.py); here it may stand between dots anywhere.
    skipped = tuple(f".*{re.escape(name)}" for name in names)
    return Quantization("awq", f"awq {bits}-bit", (Rule(scheme),), skipped=skipped, layers_only=True)


def _fp8(file: _File) -> Quantization:
    block, static = file.data.get("weight_block_size"), file.data.get("activation_scheme") == "static"
    names = _skips(file, "modules_to_not_convert", "ignored_layers")
    if block is None:
        tensor = Scheme("scaled", 8, scale_width=4, input_scale=static)
        return Quantization("fp8", "fp8 with a scale for each tensor", (Rule(tensor),), **names)
    if not isinstance(block, list) or len(block) != 2 or not all(isinstance(n, int) and n > 0 for n in block):
        raise file.error(f"weight_block_size is {block!r}; two numbers were expected")
    # Scales that are powers of two (scale_fmt ue8m0) stand in DeepSeek's files as fp32, too.
    scheme = Scheme("fp8_block", 8, block=(block[0], block[1]), scale_width=4)
    return Quantization("fp8", f"fp8 with a scale for each {block[0]} × {block[1]}", (Rule(scheme),), **names)


def _fbgemm(file: _File) -> Quantization:
    scheme = Scheme("scaled", 8, by_output=True, scale_width=4)
    names = _skips(file, "modules_to_not_convert")
    return Quantization("fbgemm_fp8", "fp8 with a scale for each output", (Rule(scheme),), training="dequantised", **names)


def _mxfp4(file: _File) -> Quantization:
    names = _skips(file, "modules_to_not_convert")
    return Quantization("mxfp4", "mxfp4", (Rule(Scheme("mxfp4", 4, group=32)),), experts_only=True, training="dequantised", **names)


def _modelopt(file: _File) -> Quantization:
    algorithm = str(file.data.get("quant_algo") or "").upper()
    schemes = {
        "FP8": Scheme("scaled", 8, scale_width=4, input_scale=True),
        "NVFP4": Scheme("nvfp4", 4, group=file.int("group_size", default=16), input_scale=True),
        "MXFP4": Scheme("mxfp4", 4, group=32),
        "W4A16_AWQ": Scheme("packed", 4, group=file.int("group_size", default=128)),
    }
    if algorithm not in schemes:
        raise UnknownNameError("quant_algo", algorithm or "(none)", schemes, where=f"{file.where}: quantization_config")
    names = _wildcards(file, "ignore", "exclude_modules")
    return Quantization("modelopt", algorithm.lower(), (Rule(schemes[algorithm]),), training="dequantised", **names)


def _compressed_tensors(file: _File) -> Quantization:
    groups, form = file.data.get("config_groups"), str(file.data.get("format") or "")
    if not isinstance(groups, dict) or not groups:
        raise file.error("compressed-tensors without config_groups")
    rules: list[Rule] = []
    names: list[str] = []
    for name, group in groups.items():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise file.error(f"config_groups.{name} has no weights")
        scheme, label = _compressed(file, weights, str(group.get("format") or form), group.get("input_activations"))
        names.append(label)
        patterns = ["" if target == "Linear" else str(target).removeprefix("re:") for target in group.get("targets") or ["Linear"]]
        rules += [Rule(scheme, file.pattern(pattern)) for pattern in patterns]
    return Quantization("compressed-tensors", ", ".join(dict.fromkeys(names)), tuple(rules), **_wildcards(file, "ignore"))


def _compressed(file: _File, weights: Mapping[str, Any], form: str, inputs: Any) -> tuple[Scheme, str]:
    """The scheme of a group of compressed-tensors."""
    part = _File(weights, file.where)
    bits, strategy, kind = part.int("num_bits"), str(weights.get("strategy") or "tensor"), str(weights.get("type") or "int")
    static = isinstance(inputs, dict) and inputs.get("dynamic") is False
    if form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized"):
        four: Kind = "nvfp4" if form.startswith("nvfp4") else "mxfp4"
        return Scheme(four, 4, group=part.int("group_size", default=16), input_scale=static), four
    if form == "pack-quantized":
        group = part.int("group_size", default=-1) if strategy == "group" else -1
        return Scheme("packed", bits, group=group, zero_point=not part.flag("symmetric", default=True)), f"int{bits}, packed"
    if form not in ("int-quantized", "float-quantized", "naive-quantized") or bits != 8:
        raise file.error(f"format {form!r} with {bits} bits is not known to memcalc")
    name = f"{'fp' if kind == 'float' else 'int'}8"
    if strategy == "block":
        block = weights.get("block_structure")
        size = [int(n) for n in re.findall(r"\d+", str(block))] or [128, 128]
        return Scheme("fp8_block", 8, block=(size[0], size[-1]), scale_width=2), f"{name} with a scale for each block"
    if strategy not in ("tensor", "channel"):
        raise file.error(f"strategy {strategy!r} with format {form} is not known to memcalc")
    return Scheme("scaled", 8, by_output=strategy == "channel", input_scale=static), f"{name} with a scale for each {strategy}"


def _hqq(file: _File) -> Quantization:
    inner = file.data.get("quant_config")
    weights = inner.get("weight_quant_params") if isinstance(inner, dict) else None
    if not isinstance(weights, dict):
        raise file.error("hqq without quant_config.weight_quant_params, or with parameters for each module")
    part = _File(weights, file.where)
    scheme = Scheme("affine", part.int("nbits"), group=part.int("group_size", default=64))
    return Quantization("hqq", f"hqq {scheme.bits}-bit", (Rule(scheme),), stacked=False, **_skips(file, "skip_modules"))


READERS: dict[str, Reader] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm-fp8": _fbgemm,
    "fp8": _fp8,
    "gptq": _gptq,
    "hqq": _hqq,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
"""How each ``quant_method`` is read."""
