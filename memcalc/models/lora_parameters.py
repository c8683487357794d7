"""Adapters of parameters that are no linear layer's: stacked weights of experts, weights of routers (PEFT's ParamWrapper).

Where transformers 5 made such parameters of what transformers 4 had as linear layers, PEFT reads the layers' names as theirs
(peft/utils/transformers_weight_conversion.py, ``_convert_peft_config_moe``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from memcalc.components.moe import Experts, ExpertsAdapter
from memcalc.errors import InputError, UnknownNameError
from memcalc.models.targets import named
from memcalc.specs.model import Axis, Component, ModelSpec
from memcalc.specs.run import LoraSpec

C = TypeVar("C", bound=Component)
ROUTER = "gate.weight"

OF_MIXTRAL = {"gate": ROUTER, "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}
OF_QWEN = {"gate": ROUTER, "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj", "down_proj": "down_proj"}
LIKE_MIXTRAL = ("mixtral", "minimax", "minimax_m2")
LIKE_QWEN = (
    "afmoe", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite",
    "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash", "olmoe", "qwen3_moe", "qwen3_next",
)  # fmt: skip
MOVED = {**dict.fromkeys(LIKE_MIXTRAL, OF_MIXTRAL), **dict.fromkeys(LIKE_QWEN, OF_QWEN)}
"""Which parameter stands for a layer of transformers 4, by model_type (``_MODEL_TO_CONVERSION_PATTERN``, ``_MOE_TARGET_MODULE_MAPPING``)."""


def moved(model: ModelSpec, lora: LoraSpec, names: set[str]) -> LoraSpec:
    """The same adapters, with layers that became parameters among ``target_parameters``. Two layers in one parameter double its rank.

    Args:
        model: whose experts are stacked.
        lora: as asked.
        names: of the model's linear layers.

    Raises:
        InputError: one of two layers that became one parameter.
    """
    layers = MOVED.get(model.model_type)
    if layers is None or not parameters_of(model):
        return lora
    asked = resolved(model, lora.target_modules, names, layers)
    old = {name: next((layer for layer in layers if name == layer or name.endswith(f".{layer}")), None) for name in asked}
    found = {layer for layer in old.values() if layer is not None}
    if not found:
        return lora
    for layer in found:
        missing = {other for other, parameter in layers.items() if parameter == layers[layer]} - found
        if missing:
            raise InputError(f"{layer} stands in {layers[layer]} with {', '.join(sorted(missing))}: target both or none", where="lora.target_modules")
    fused = {p: lora.r * n for p in set(layers.values()) if (n := sum(layers[layer] == p for layer in found)) > 1}
    parameters = dict.fromkeys((*(lora.target_parameters or ()), *(layers[layer] for layer in layers if layer in found)))
    rest = tuple(name for name, layer in old.items() if layer is None)
    return lora.model_copy(
        update={
            "target_modules": rest,
            "target_parameters": tuple(parameters),
            "rank_pattern": {**(lora.rank_pattern or {}), **{re.escape(p): r for p, r in fused.items()}} or None,
        }
    )


def resolved(model: ModelSpec, wanted: str | tuple[str, ...], names: set[str], layers: dict[str, str]) -> tuple[str, ...]:
    """Names of layers, those of transformers 4 among them, that are meant by a list, by ``all-linear``, or by a regular expression."""
    if not isinstance(wanted, str):
        return wanted
    if wanted == "all-linear":
        heads = {block.path.rsplit("/", 1)[-1] for block in model.blocks if block.role in ("head", "embedding")}
        return tuple(sorted((names - heads) | layers.keys()))
    meant = named(wanted, names, where="lora.target_modules")
    inside = [("mlp.gate", "gate"), *((f"mlp.experts.{layer}", layer) for layer in layers)]
    found = {name for name in names if any(meant(name, f"layers.0.{stem}.{name}") for stem in ("self_attn", "mlp", "linear_attn"))}
    return tuple(sorted(found | {layer for path, layer in inside if meant(layer, f"layers.0.{path}")}))


def with_adapters(module: C, prefix: str, lora: LoraSpec) -> C:
    """Stacked experts, or a router, with adapters on the weights that ``target_parameters`` names, by the ends of their dotted paths."""
    found = []
    for weight in module.own_weights():
        path = f"{prefix}{weight.name}".replace("/", ".")
        if len(weight.shape) > 1 and any(path == name or path.endswith(f".{name}") for name in lora.target_parameters or ()):
            into, out = (weight.shape[i] for i in ((-2, -1) if isinstance(module, Experts) and module.transposed else (-1, -2)))
            r = rank_of(lora, path)
            experts = module.count.size if isinstance(module, Experts) else 1
            found.append(ExpertsAdapter(weight.name, into, out, Axis("r * num_experts", r.size * experts), r, lora.dtype))
    return replace(module, adapters=tuple(found))  # type: ignore[call-arg]


def rank_of(lora: LoraSpec, path: str) -> Axis:
    """The rank of the adapter at a dotted path (peft/utils/other.py, get_pattern_key)."""
    found = (r for key, r in (lora.rank_pattern or {}).items() if re.match(rf"(.*\.)?({key})$", path))
    return Axis("r", next(found, lora.r))


def parameters_of(model: ModelSpec) -> set[str]:
    """Names of stacked weights of experts."""
    return {weight.name for block in model.blocks for experts in stacked(block.module) for weight in experts.own_weights() if len(weight.shape) == 3}


def stacked(module: Component) -> Iterator[Experts]:
    """Every component below that is stacked experts."""
    for _, child in module.children():
        if isinstance(child, Experts):
            yield child
        yield from stacked(child)


def check_parameters(model: ModelSpec, lora: LoraSpec) -> None:
    """What is targeted beside modules.

    Raises:
        UnknownNameError: a name that no stacked weight of experts has.
        InputError: what PEFT's wrapper of parameters does not have.
    """
    known = {*parameters_of(model), ROUTER}
    for name in lora.target_parameters or ():
        if name.rsplit(".", 1)[-1] not in known and not name.endswith(ROUTER):
            raise UnknownNameError("stacked weight of experts", name, known, where="lora.target_parameters")
    if lora.target_parameters and (lora.dropout or lora.use_dora):
        raise InputError("adapters of parameters have neither dropout nor DoRA, as PEFT says", where="lora.target_parameters")
