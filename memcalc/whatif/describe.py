"""What a model is made of: its parameters by slash path, its layers by kind, its cache per token. Answers as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from memcalc.engine.cache import TRANSFORMERS, layer_caches, sequence_bytes, token_bytes
from memcalc.specs.model import Block, Component, ModelSpec
from memcalc.whatif.storage import Storage, storage

WORKERS = ("MLP", "Mamba", "Mixer", "DeltaNet", "SSM", "LinearAttention")
INNER = ("up", "up_proj", "fc1", "gate_up")


class Part(NamedTuple):
    """A node of the parameter tree.

    Attributes:
        name: the last part of its path.
        path: slash path; equal layers stand under the path of all of them.
        num_params: elements below, all repetitions.
        shape: of a weight; empty for what has parts.
        repeat: how many equal ones there are.
        parts: below.
    """

    name: str
    path: str
    num_params: int
    shape: tuple[int, ...] = ()
    repeat: int = 1
    parts: tuple[Part, ...] = ()


class LayerKind(NamedTuple):
    """Layers of equal make.

    Attributes:
        num_layers: how many.
        parts: what they are made of, in words of the components.
        num_params: elements of each.
        places: their numbers, as ranges (``0-2, 5``).
    """

    num_layers: int
    parts: str
    num_params: int
    places: str


class Description(NamedTuple):
    """A model, described.

    Attributes:
        spec: the model.
        tree: its parameters.
        layers: its layers by kind.
        cache_bytes_per_token: of the key-value cache in bfloat16, for one sequence; None where there is none or it is not known.
        cache_bytes_per_sequence: what a sequence keeps beside that, however long it is: states of recurrent layers.
        why_no_cache: why it is not known.
        storage: what its checkpoint takes.
    """

    spec: ModelSpec
    tree: Part
    layers: tuple[LayerKind, ...]
    storage: Storage
    cache_bytes_per_token: int | None
    why_no_cache: str = ""
    cache_bytes_per_sequence: int = 0


def describe(name: str) -> Description:
    """A model of the catalogue, a path or a Hub id, described.

    Raises:
        InputError: as `memcalc.models.read.read_model`.
    """
    from memcalc.models.read import read_config, spec_of

    config = read_config(name)
    spec = spec_of(config)
    cache, why, states = _cache(spec)
    return Description(spec, parameter_tree(spec), layer_kinds(spec), storage(spec, config.folder), cache, why, states)


def parameter_tree(spec: ModelSpec) -> Part:
    """All parameters, equal layers put together."""
    parts = tuple(part for block, count in _together(spec) if (part := _part(block, count)).num_params)
    return Part(spec.name, "", sum(part.num_params for part in parts), parts=parts)


def layer_kinds(spec: ModelSpec) -> tuple[LayerKind, ...]:
    """The layers by what they are made of, in the order in which the first of each kind runs."""
    found: dict[str, list[tuple[int, Block]]] = {}
    number = 0
    for block in spec.blocks:
        if block.role == "layer":
            found.setdefault(_signature(block.module), []).extend((number + i, block) for i in range(block.repeat))
            number += block.repeat
    return tuple(LayerKind(len(some), kind.split("|")[0], some[0][1].module.num_params, _ranges([i for i, _ in some])) for kind, some in found.items())


# ---------------------------------------------------------------------- inside
def _together(spec: ModelSpec) -> Iterator[tuple[Block, int]]:
    """Blocks with their number of repetitions; those of equal make under one path are one."""
    counts: dict[tuple[str, str], tuple[Block, int]] = {}
    for block in spec.blocks:
        key = (block.path, _signature(block.module))
        first, count = counts.get(key, (block, 0))
        counts[key] = (first, count + block.repeat)
    yield from counts.values()


def _part(block: Block, repeat: int) -> Part:
    tree: dict[str, Any] = {}
    for path, weight in block.module.weights():
        _hang(tree, path.split("/"), tuple(int(axis.size) for axis in weight.shape), weight.num_params * repeat)
    return Part(block.path, block.path, block.module.num_params * repeat, repeat=repeat, parts=tuple(_hung(tree, block.path)))


def _hang(tree: dict[str, Any], names: list[str], shape: tuple[int, ...], num_params: int) -> None:
    for name in names[:-1]:
        tree = tree.setdefault(name, {})
    tree[names[-1]] = (shape, num_params)


def _hung(tree: dict[str, Any], path: str) -> Iterator[Part]:
    for name, value in tree.items():
        here = f"{path}/{name}"
        if isinstance(value, dict):
            parts = tuple(_hung(value, here))
            yield Part(name, here, sum(part.num_params for part in parts), parts=parts)
        else:
            yield Part(name, here, value[1], value[0])


def _signature(module: Component) -> str:
    """A layer's make: what it is called, and every size that tells it from another."""
    weights = ";".join(f"{path}:{'x'.join(str(axis.size) for axis in weight.shape)}" for path, weight in module.weights())
    return f"{_words(module)}|{weights}"


def _words(module: Component) -> str:
    """The components that do the work, with the sizes that people ask for."""
    found = [text for component in _below(module) if (text := _phrase(component))]
    return " + ".join(dict.fromkeys(found)) or type(module).__name__


def _below(module: Component) -> Iterator[Component]:
    for _, child in module.children():
        yield child
        if not _phrase(child):
            yield from _below(child)


def _phrase(component: Any) -> str:
    """What a component is in a few words, from the fields that its kind has; empty for what only holds others or is small."""
    name = type(component).__name__
    if hasattr(component, "num_heads"):
        return f"{name}({', '.join(_heads(component))})"
    if hasattr(component, "experts") and hasattr(component, "gate"):
        count = getattr(getattr(component.experts, "count", None), "size", "?")
        shared = ", shared expert" if getattr(component, "shared", None) is not None else ""
        return f"{name}({count} experts, {getattr(component.gate, 'top_k', '?')} per token{shared})"
    if any(word in name for word in WORKERS):
        inner = next((size for field in INNER if (size := _outputs(component, field))), None)
        return f"{name}({inner})" if inner else name
    return ""


def _heads(component: Any) -> Iterator[str]:
    kv, dim = getattr(component, "num_kv_heads", None), getattr(component, "head_dim", None)
    heads, dim = (getattr(size, "size", size) for size in (component.num_heads, dim))  # Mamba-2 has axes
    yield f"{heads} heads{f' of {dim}' if dim else ''}"
    if kv is not None and kv != heads:
        yield f"{kv} KV"
    if getattr(component, "window", None):
        yield f"window {component.window}"


def _outputs(component: Component, field: str) -> int | None:
    outputs = getattr(getattr(component, field, None), "outputs", None)
    return None if outputs is None else int(outputs.size)


def _ranges(numbers: list[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in found]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:5], "…", shown[-1]])


def _cache(spec: ModelSpec) -> tuple[int | None, str, int]:
    """What one token adds to transformers' cache, and what a sequence keeps beside that."""
    caches = layer_caches(spec.blocks)
    per_token, states = int(token_bytes(caches, TRANSFORMERS)), int(sequence_bytes(caches, 0, TRANSFORMERS))
    return (per_token, "", states) if per_token else (None, "none that grows with the tokens", states)
