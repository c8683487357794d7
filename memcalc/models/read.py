"""From what the user calls a model to its description: a catalogue name, a path, or a Hub id."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memcalc.errors import InputError
from memcalc.models import catalogue, families, hub
from memcalc.models.config import Config
from memcalc.models.files import read_json
from memcalc.models.quantization import from_modelopt, read_quantization
from memcalc.specs.model import ModelSpec
from memcalc.specs.quantization import Quantization

if TYPE_CHECKING:
    from memcalc.models.derived import Derived


def read_model(name: str) -> ModelSpec:
    """The model that `name` names.

    Args:
        name: a name of the catalogue (which goes before a folder of that name; write ``./name`` for the folder), a path to a config.json
            or to the folder that holds it, or a Hub id, looked for in the catalogue, in the local cache, among the names that are made of
            the catalogue's (`memcalc.models.derived`: what it was taken for is among what was assumed) and on the Hub.

    Raises:
        UnknownNameError: nothing is called that, or its ``model_type`` has no family.
        ModelError: the config.json does not determine a model.
        InputError: the file cannot be read or had.
    """
    return spec_of(read_config(name))


def read_config(name: str) -> Config:
    """The config.json behind a name, as families see it; arguments and errors as for `read_model`."""
    if not name.strip():
        raise InputError("no model given: name one of `memcalc models`, a path to a config.json, or a Hub id", where="model")
    if name.lstrip().startswith("{"):  # a config.json in one line, as importers make it of the sizes in a command
        return _config(_inline(name), where="model", name="the model of these sizes")
    entry = catalogue.path_of(name)
    return _found(name) if entry is None else _of_catalogue(entry, name)


def _found(name: str) -> Config:
    """What is called by a path, a Hub id or a name that is made of the catalogue's."""
    from memcalc.models.derived import derived, nearest

    exists = os.path.exists(name)  # noqa: PTH110 (answers False where pathlib raises)
    taken = derived(name) if not exists and _is_folder_elsewhere(name) else None
    if taken is None and (exists or _looks_like_path(name)):
        path = _file_at(name)
        if path.endswith(".gguf"):
            from memcalc.models.gguf_config import gguf_config

            return _config(gguf_config(path), where=path, name=name)
        return _config(read_json(path), where=path, name=name, folder=os.path.dirname(path) or ".")  # noqa: PTH120 (spelt as the user did)
    entry = catalogue.path_of(catalogue.resolve(name) or "")
    if entry is not None:
        return _of_catalogue(entry, name)
    is_hub_id = hub.is_hub_id(name)
    taken = taken or (None if is_hub_id and hub.is_cached(name) else derived(name))
    if taken is not None:
        return _taken(taken, name)
    if is_hub_id:
        file = _fetched(name)
        return _config(read_json(file, where=f"{name}/config.json"), where=f"{name}/config.json", name=name, folder=str(file.parent))
    raise catalogue.unknown(name, near=nearest(name))


def _of_catalogue(entry: Path, name: str) -> Config:
    return _config(read_json(entry), where=f"configs/models/{entry.name}", name=name)


def _taken(found: Derived, name: str) -> Config:
    """The entry that a name is taken for, with weights stored as the name says."""
    path = catalogue.path_of(found.entry)
    assert path is not None
    data = read_json(path)
    if found.quantization is not None:
        data = {**data, "quantization_config": found.quantization or None}
    config = _config(data, where=f"configs/models/{path.name}", name=name)
    config.taken = found.said
    return config


def _fetched(name: str) -> Path:
    try:
        return hub.config_file(name)
    except InputError as error:
        from memcalc.models.derived import nearest

        near = nearest(name)
        raise InputError(f"{error.message}{f'; {near}' if near else ''}", where=error.where) from None


def spec_of(config: Config) -> ModelSpec:
    """What the family of a config.json makes of it, with what was assumed."""
    spec = families.family(config.model_type, where=config.where).spec(config)
    text = config.data.get("text_config")
    parts = (config.data, text) if isinstance(text, dict) else (config.data,)
    named = next((value for part in parts for key in ("dtype", "torch_dtype") if isinstance(value := part.get(key), str)), None)
    quantization, aside = _quantization(config, parts)
    return replace(spec, name=config.name, assumed=config.assumptions + aside, dtype=named and named.removeprefix("torch."), quantization=quantization)


def _quantization(config: Config, parts: tuple[Mapping[str, Any], ...]) -> tuple[Quantization | None, tuple[str, ...]]:
    """How the checkpoint is quantised, and what of that is left aside: no count of parameters depends on it."""
    data = next((part for part in parts if part.get("quantization_config") or part.get("compression_config")), {})
    if not data and config.folder is not None:
        beside = os.path.join(config.folder, "hf_quant_config.json")  # noqa: PTH118 (as above)
        data = {"quantization_config": from_modelopt(read_json(beside))} if os.path.isfile(beside) else {}  # noqa: PTH113 (as above)
    try:
        return read_quantization(data, where=config.where), ()
    except InputError as error:
        return None, (f"{error.message}: it is left aside, and weights are taken as not quantised",)


def _config(data: dict[str, Any], *, where: str, name: str, folder: str | None = None) -> Config:
    model_type = families.infer_model_type(data, where=where)
    config = Config(data, where=where, name=name, model_type=model_type, folder=folder)
    if not data.get("model_type"):
        config.assume(f"model_type {model_type}", "its architectures")
    return config


def _inline(text: str) -> dict[str, Any]:
    import json

    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no config.json in one line: {error}", where="model") from None
    return dict(data)


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~", ".\\", "..\\")) or name.endswith((".json", ".gguf", "/", "\\")) or name in {".", ".."} or name.count("/") > 1


def _is_folder_elsewhere(name: str) -> bool:
    """A path of several parts to a folder: where a launch runs on other machines, models stand in folders that are not on this one."""
    return (name.startswith("/") or name.rstrip("/").count("/") > 1) and not name.endswith((".json", ".gguf"))


def _file_at(name: str) -> str:
    """The config.json that a path means, spelt as the user did.

    Raises:
        InputError: there is none; the message says what the folder holds instead.
    """
    path = os.path.expanduser(name)  # noqa: PTH111 (leaves an unknown user's name as it is)
    if not os.path.isdir(path):  # noqa: PTH112 (answers False where pathlib raises)
        return path
    file, adapter = os.path.join(path, hub.FILE), os.path.join(path, "adapter_config.json")  # noqa: PTH118
    if os.path.lexists(file):
        return file
    if os.path.lexists(adapter):
        base = read_json(adapter).get("base_model_name_or_path")
        raise InputError(f"holds an adapter, not a model: give its base model{f', {base}' if isinstance(base, str) and base else ''}", where=name)
    raise InputError("the folder has no config.json: give the folder that holds the model's, or the file itself", where=name)
