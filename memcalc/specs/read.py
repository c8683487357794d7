"""From what people write to a Run: a file, a dict, keyword arguments, flags, or several of these, the later winning."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.coerce import coerce
from memcalc.specs.fields import Leaf, Section, find, flags, run_keys
from memcalc.specs.files import describe, parse_value, read_yaml
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from pydantic import ValidationError

Place = tuple[str, ...]
RUN_FILES = (".yaml", ".yml")


class Layer(NamedTuple):
    """Keys from one source.

    Attributes:
        data: nested as in a run file.
        names: what messages call a key, by its place (``--tp``); by default its dotted name.
        places: where each key stands (``run.yaml:12``).
    """

    data: Mapping[str, Any]
    names: Mapping[Place, str] = {}
    places: Mapping[Place, str] = {}

    def leaves(self) -> Iterator[tuple[Place, Any]]:
        """Every value below the maps, with its place."""
        open_: list[tuple[Place, Any]] = [((), self.data)]
        while open_:
            place, value = open_.pop()
            if isinstance(value, Mapping):
                open_ += [((*place, key), inner) for key, inner in value.items()]
            else:
                yield place, value


def read_run(source: Run | Mapping[str, Any] | str | os.PathLike[str] | None = None, /, **keys: Any) -> Run:
    """A run from Python.

    Args:
        source: a run, a dict laid out as a run file, the path of a run file (``.yaml``, ``.yml``), or the name of a model.
        keys: keys of the run file, or the flags' names with underscores (``tp=2``, ``gpu="h100"``, ``lora_r=16``); they win.

    Raises:
        InputError: a key or value that cannot be used; one line says which.

    >>> read_run("llama-7b", tp=2, zero=2).sharding.tp
    2
    """
    layers: list[Layer] = []
    if isinstance(source, Run):
        layers.append(Layer(source.model_dump(exclude_unset=True)))
    elif isinstance(source, Mapping):
        layers.append(Layer(source))
    elif source is not None:
        text = os.fspath(source)
        layers.append(file_layer(text) if text.endswith(RUN_FILES) else Layer({"model": text}))
    if keys:
        layers.append(key_layer(keys))
    return merged(layers)


def file_layer(path: str | Path) -> Layer:
    """The keys of a run file. A path in it that does not exist from the working directory is taken from the file's folder."""
    document = read_yaml(path)
    places = {place: f"{path}:{line}" for place, line in document.lines.items()}
    return Layer(_beside(document.data, (), Path(path).parent), {}, places)


def key_layer(keys: Mapping[str, Any]) -> Layer:
    """Keys of the run file, or flags' names with underscores, as Python's keyword arguments and inline variants have them.

    Raises:
        UnknownNameError: a name that is neither.
    """
    layer = Layer({}, {}, {})
    for name, value in keys.items():
        if name in run_keys().children and not (isinstance(value, bool) and name in flags()):
            layer = _put(layer, (name,), value, name)
            continue
        node = flags().get(name.replace("_", "-"))
        if node is None:
            raise unknown_key(name, (*run_keys().children, *(flag.replace("-", "_") for flag in flags())))
        layer = _put(layer, node.path, _switched(node, value), name)
    return layer


def flag_layer(given: Mapping[str, str | bool]) -> Layer:
    """Flags of the command line: names without dashes, values as text; of switches, true or false."""
    layer = Layer({}, {}, {})
    for name, value in given.items():
        node = flags()[name]
        shown = f"--{name}"
        layer = _put(layer, node.path, _switched(node, _from_text(node, value, shown)), shown)
    return layer


def merged(layers: Iterable[Layer]) -> Run:
    """One run from several layers, the later winning key by key.

    Raises:
        InputError: a key or value that cannot be used.
    """
    data: dict[str, Any] = {}
    names: dict[Place, str] = {}
    places: dict[Place, str] = {}
    for layer in layers:
        checked = _checked(layer, run_keys(), layer.data, ())
        _overlay(data, checked, ())
        names |= layer.names
        places |= dict.fromkeys(layer.names, "") | dict(layer.places)
    if "model" not in data:
        raise InputError("no model given: name one of `memcalc models`, a path to a config.json, or a Hub id", where="model")
    if not _more_to_check(run_keys()):
        made: Run = _construct(run_keys(), data)
        return made
    from pydantic import ValidationError

    try:
        return Run.model_validate(data)
    except ValidationError as error:
        raise _one_line(error, names, places) from None


def unknown_key(name: str, known: Iterable[str], *, where: str | None = None, place: Place = ()) -> InputError:
    """The error for a key that there is not; says so where the same key is known elsewhere."""
    node = flags().get(name.replace("_", "-"))
    if node is not None and node.path != (*place, name):
        return InputError(f"unknown key {'.'.join((*place, name))!r}; did you mean {node.key}?", where=where)
    return UnknownNameError("key", ".".join((*place, name)), {".".join((*place, other)) for other in known}, where=where)


# ---------------------------------------------------------------------- inside
def _more_to_check(section: Section) -> bool:
    """Whether pydantic knows more than `coerce`: validators in a class's body, or a key of a kind that `coerce` passes on."""
    found = section.spec.__pydantic_decorators__
    if found.validators or found.field_validators or found.root_validators or found.model_validators:
        return True
    return any(child.kind == "any" if isinstance(child, Leaf) else _more_to_check(child) for child in section.children.values())


def _construct(section: Section, data: Mapping[str, Any]) -> Any:
    """A spec from values that have been checked; pydantic's validator is neither built nor asked."""
    nodes = section.children
    values = {name: _construct(node, value) if isinstance(node := nodes[name], Section) and value is not None else value for name, value in data.items()}
    return section.spec.model_construct(**values)


def _checked(layer: Layer, section: Section, data: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """A layer's data with every key known and every value as its field wants it."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        here = (*place, str(key))
        where = layer.places.get(here)
        node = section.children.get(key)
        if node is None:
            raise unknown_key(str(key), section.children, where=where, place=place)
        name = layer.names.get(here, ".".join(here))
        if isinstance(node, Leaf):
            found[key] = coerce(node, value, name=name, where=where)
        elif isinstance(value, Mapping):
            found[key] = _checked(layer, node, value, here)
        elif value is None or (value is False and node.nullable):
            found[key] = None if node.nullable else {}
        elif value is True and node.nullable:
            found[key] = {}
        else:
            raise InputError(f"{name} is {describe(value)}; accepted: {node.accepts}", where=where)
    return found


def _overlay(data: dict[str, Any], more: Mapping[str, Any], place: Place) -> None:
    for key, value in more.items():
        before = data.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and isinstance(find((*place, key)), Section):
            _overlay(before, value, (*place, key))
        else:
            data[key] = value


def _put(layer: Layer, path: Place, value: Any, name: str) -> Layer:
    data: dict[str, Any] = dict(layer.data)
    inner = data
    for part in path[:-1]:
        held = inner.get(part)
        inner[part] = dict(held) if isinstance(held, Mapping) else {}
        inner = inner[part]
    before = inner.get(path[-1])
    inner[path[-1]] = {**before, **value} if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return Layer(data, {**layer.names, path: name}, layer.places)


def _switched(node: Leaf | Section, value: Any) -> Any:
    """A section's own flag switches it on with its defaults, or off."""
    return ({} if value else None) if isinstance(node, Section) and isinstance(value, bool) else value


def _from_text(node: Leaf | Section, value: Any, shown: str) -> Any:
    if isinstance(node, Leaf) and isinstance(value, str) and (node.kind == "any" or (node.kind == "map" and value.lstrip().startswith("{"))):
        return parse_value(value, where=shown)
    return value


def _beside(data: Mapping[str, Any], place: Place, folder: Path) -> dict[str, Any]:
    return {key: _value_beside(value, (*place, key), folder) for key, value in data.items()}


def _value_beside(value: Any, place: Place, folder: Path) -> Any:
    node = find(place)
    if isinstance(value, dict) and isinstance(node, Section):
        return _beside(value, place, folder)
    if isinstance(value, str) and isinstance(node, Leaf) and node.is_path:
        return _found_beside(value, folder)
    return value


def _found_beside(text: str, folder: Path) -> str:
    looks_like_path = text.startswith(".") or "/" in text or text.endswith(".json")
    if not looks_like_path or os.path.isabs(text) or os.path.exists(text):  # noqa: PTH110, PTH117 (answer False where pathlib raises)
        return text
    beside = os.path.join(folder, text)  # noqa: PTH118
    return beside if os.path.exists(beside) else text  # noqa: PTH110


def _one_line(error: ValidationError, names: Mapping[Place, str], places: Mapping[Place, str]) -> InputError:
    """pydantic's first complaint as ours."""
    first = error.errors(include_url=False)[0]
    place = tuple(str(part) for part in first["loc"])
    while place and find(place) is None:
        place = place[:-1]
    node = find(place) if place else None
    length = len(node.path) if isinstance(node, Leaf) else len(place)
    place = place[:length]
    name = names.get(place, ".".join(place))
    where = places.get(place) or None
    if first["type"] in ("value_error", "assertion_error"):
        words = str(first["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
        return InputError(words, where=where or name or None)
    accepted = f"; accepted: {node.accepts}" if node is not None else f": {first['msg']}"
    return InputError(f"{name} is {describe(first['input'])}{accepted}", where=where)
