"""A model with adapters: the same tree, with the targeted linear layers wrapped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import groupby
from typing import Any, TypeVar

from memcalc.components import Embedding, Head, Linear
from memcalc.components.embedding import Original, TableAdapter
from memcalc.components.lora import LoraLinear, SavedLinear
from memcalc.components.moe import Experts, Router
from memcalc.errors import InputError, UnknownNameError
from memcalc.models.lora_parameters import check_parameters, moved, rank_of, with_adapters
from memcalc.models.targets import Wanted, named, tells_layers_apart
from memcalc.specs.model import Block, Component, ModelSpec
from memcalc.specs.run import LoraSpec

C = TypeVar("C", bound=Component)


DEFAULT_TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("bart", "opt", "gptj", "gpt_neo", "llama", "llama4", "llama4_text", "mistral", "mixtral", "stablelm"), ("q_proj", "v_proj")),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "gemma4", "gemma4_text", "qwen2", "qwen3"), ("q_proj", "v_proj")),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "electra"), ("query", "value")),
    **dict.fromkeys(("bloom", "gpt_neox", "falcon", "chatglm"), ("query_key_value",)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("c_attn",)),
    "t5": ("q", "v"),
    "mt5": ("q", "v"),
    "mpt": ("Wqkv",),
    "codegen": ("qkv_proj",),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"),
}
"""What PEFT targets where nothing is named, by model_type (peft/utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING)."""


def adapt(model: ModelSpec, lora: LoraSpec, *, converts: bool = False) -> ModelSpec:
    """Wrap every layer that ``target_modules`` names, the output head and the token table only when they are named.

    Args:
        model: the frozen base.
        lora: adapters, and where.
        converts: layers of transformers 4 that are parameters in 5 are adapted as such (`memcalc.models.lora_parameters.moved`).

    Raises:
        InputError: a rank that is none.
        UnknownNameError: a name that no linear layer of the model has; with ``default``, a model_type for which PEFT has none.
    """
    if lora.target_modules == "default":
        if model.model_type not in DEFAULT_TARGETS:
            raise UnknownNameError("model_type with default target modules", model.model_type, DEFAULT_TARGETS, where="lora.target_modules")
        lora = lora.model_copy(update={"target_modules": DEFAULT_TARGETS[model.model_type]})
    for key, rank in (lora.rank_pattern or {}).items():
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise InputError(f"{key} has rank {rank!r}; a positive integer was expected", where="lora.rank_pattern")
    check_parameters(model, lora)
    names = {m.name for block in model.blocks for _, m in linears(block.module)}
    if converts:
        lora = moved(model, lora, names)
    names |= {block.path.rsplit("/", 1)[-1] for block in model.blocks if isinstance(block.module, Embedding)}
    wanted = targets(lora, names, with_images=model.vision is not None)
    found = replace(model, blocks=tuple(layer_by_layer(saved(model, lora), lora, wanted)))
    if not any(is_adapter(path) for path, _, _ in found.weights()):
        raise InputError(f"{lora.target_modules!r} matches no linear layer of {model.name}; names: {', '.join(sorted(names))}", where="lora.target_modules")
    return found


def layer_by_layer(blocks: Iterable[Block], lora: LoraSpec, wanted: Wanted) -> Iterator[Block]:
    """The blocks with their targeted layers wrapped; equal layers stay together, those that are no longer equal do not."""
    wants = (lora.target_modules, lora.exclude_modules or (), tuple(lora.rank_pattern or ()))
    apart = lora.layers_to_transform is not None or any(map(tells_layers_apart, wants))
    first: Counter[str] = Counter()
    for block in blocks:
        begin = first[block.path]
        first[block.path] += block.repeat
        if not apart or block.repeat == 1:
            yield adapted(block, begin, lora, wanted)
            continue
        for module, same in groupby(adapted(replace(block, repeat=1), begin + i, lora, wanted).module for i in range(block.repeat)):
            yield replace(block, module=module, repeat=len(list(same)))


def adapted(block: Block, number: int, lora: LoraSpec, wanted: Wanted) -> Block:
    """A block with its targeted layers wrapped.

    Args:
        block: one layer, or several that are equal and shall stay so.
        number: of the first layer.
        lora, wanted: adapters, and where.
    """
    everything = lora.target_modules == "all-linear"
    if block.role == "head" and everything:
        return block
    is_layer = block.role in ("layer", "tower")
    if is_layer and lora.layers_to_transform is not None and str(number) not in lora.layers_to_transform:
        return block
    module = wrap(block.module, f"{block.path}/{number}/" if is_layer else f"{block.path}/", lora, wanted)
    name = block.path.rsplit("/", 1)[-1]
    if isinstance(module, Embedding) and not everything and wanted(name, block.path.replace("/", ".")):
        module = replace(module, adapter=TableAdapter(module.vocab, module.width, lora.r, lora.dtype))
    return replace(block, module=module)


def saved(model: ModelSpec, lora: LoraSpec) -> Iterator[Block]:
    """The blocks, with a trained copy of each module that ``modules_to_save`` names: the token table, the output head.

    Raises:
        UnknownNameError: another name.
    """
    names = set(lora.modules_to_save or ())
    known = {block.path.rsplit("/", 1)[-1]: block for block in model.blocks if type(block.module) in (Embedding, Head)}
    for name in names - known.keys():
        raise UnknownNameError("module to save", name, known, where="lora.modules_to_save")
    for block in model.blocks:
        module, is_saved = block.module, block.path.rsplit("/", 1)[-1] in names
        if isinstance(module, Embedding):
            table = next(module.own_weights())
            head_shares = not any(type(b.module) is Head and b.path.rsplit("/", 1)[-1] in names for b in model.blocks)
            tied = module.tied and head_shares and not is_saved
            module = replace(module, tied=tied, original=Original(table)) if is_saved else replace(module, tied=tied)
        elif isinstance(module, Head) and is_saved:
            proj, original = module.proj, None if module.tied else Original(next(module.proj.own_weights()))
            module = replace(module, proj=SavedLinear(proj.name, proj.inputs, proj.outputs, proj.bias, proj.split, proj.dtype, original))
        yield replace(block, module=module)


def targets(lora: LoraSpec, names: set[str], *, with_images: bool) -> Wanted:
    """Whether a linear layer is targeted.

    Raises:
        UnknownNameError, InputError: names or patterns that cannot be.
    """
    wanted = named(lora.target_modules, names, where="lora.target_modules", with_images=with_images)
    if lora.exclude_modules is None:
        return wanted
    excluded = named(lora.exclude_modules, names, where="lora.exclude_modules", with_images=with_images)
    return lambda name, path: wanted(name, path) and not excluded(name, path)


def linears(module: Component, prefix: str = "") -> list[tuple[str, Linear]]:
    """Slash path and component of every linear layer below."""
    if isinstance(module, Linear):
        return [(prefix.rstrip("/"), module)]
    return [found for name, child in module.children() for found in linears(child, f"{prefix}{name}/")]


def wrap(module: C, prefix: str, lora: LoraSpec, wanted: Wanted) -> C:
    """A component with its targeted linear layers wrapped, at any depth."""
    changed: dict[str, Any] = {}
    for field in fields(module):
        value = getattr(module, field.name)
        if isinstance(value, Linear):
            path = f"{prefix}{value.name}".replace("/", ".")
            if wanted(value.name, path):
                changed[field.name] = wrapped(value, lora, path)
        elif isinstance(value, (Experts, Router)) and lora.target_parameters:
            changed[field.name] = with_adapters(value, f"{prefix}{value.module_name or field.name}/", lora)
        elif isinstance(value, Component) and not isinstance(value, Head):
            changed[field.name] = wrap(value, f"{prefix}{value.module_name or field.name}/", lora, wanted)
        elif isinstance(value, tuple) and any(isinstance(item, Component) for item in value):
            changed[field.name] = tuple(
                wrap(item, f"{prefix}{field.name}/{i}/", lora, wanted) if isinstance(item, Component) else item for i, item in enumerate(value)
            )
    return replace(module, **changed) if changed else module


def wrapped(linear: Linear, lora: LoraSpec, path: str) -> LoraLinear:
    """One linear layer with its adapter, whose rank may depend on its dotted path."""
    rank = rank_of(lora, path)
    a = Linear("lora_A/default", linear.inputs, rank, split="row" if linear.split == "row" else None, dtype=lora.dtype)
    b = Linear("lora_B/default", rank, linear.outputs, split="column" if linear.split == "column" else None, dtype=lora.dtype)
    return LoraLinear(linear, a, b, lora.dropout, lora.use_dora)


TRAINED = ("/lora_A/", "/lora_B/", "/lora_embedding_", "/lora_magnitude_vector/", "/modules_to_save/")


def is_adapter(path: str) -> bool:
    """Whether a weight's path is that of an adapter, or of a copy that is trained in a module's place."""
    return any(part in path for part in TRAINED)
