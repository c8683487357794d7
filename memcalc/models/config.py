"""Config: a config.json as a family sees it. Every reading is checked; what the file leaves out is never invented."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from memcalc.errors import ModelError
from memcalc.models.defaults import MISSING, Defaults

# The methods below bear the types' own names.
Int: TypeAlias = int
Str: TypeAlias = str
Bool: TypeAlias = bool
Float: TypeAlias = float

LIMIT = 2**40
"""No size of a model is larger."""

CORE = (
    frozenset({"hidden_size", "n_embd", "d_model", "dim"})
    | frozenset({"num_hidden_layers", "n_layer", "num_layers", "n_layers"})
    | frozenset({"num_attention_heads", "n_head", "num_heads", "n_heads"})
)
"""Sizes that say which model of its family a file describes. A class's default for them is some other model's number."""

_UNSET: Any = object()


class Config:
    """One object of a config.json.

    A reading takes the key's value from the file. Where the file leaves it out (or holds null) it takes, in this order: the family's
    own `default`; what transformers' class makes of the file, which is written down in `assumed`. A file without ``model_type``
    is somebody's copy that may have dropped anything, so transformers' defaults say nothing about it: there, and for the sizes
    in `CORE`, a missing key is an error that names it.

    Args:
        data: the object.
        where: the file, for messages.
        name: what the user called the model.
        model_type: Hugging Face's, stated or inferred.
        folder: where the file stands; None for one of the catalogue.

    Attributes:
        data, where, name, folder: as given.
        assumed: what the file leaves out, by where it was taken from; nested configurations write into the same map.
        taken: a sentence on what stands for the file that its name means, where that is not at hand; else empty.
    """

    def __init__(self, data: Mapping[Str, Any], *, where: Str, name: Str = "", model_type: Str = "", folder: Str | None = None) -> None:
        self.folder = folder
        self.data, self.where, self.name = data, where, name
        self._model_type = model_type or Str(data.get("model_type") or "")
        self.assumed: dict[Str, list[Str]] = {}
        self.taken = ""
        self._prefix = ""
        self._defaults: Defaults | None = Defaults(self.model_type, data) if data.get("model_type") else None

    # ------------------------------------------------------------------ readings
    def int(self, *keys: Str, default: Any = _UNSET, minimum: Int = 1) -> Int:
        """A size.

        Args:
            keys: its name in the files of this family, the usual one first.
            default: what every model of this family has whose file leaves the key out.
            minimum: the least that makes sense.
        """
        return self._integer(keys[0], self._find(keys, default), minimum)

    def optional_int(self, *keys: Str, default: Any = _UNSET, minimum: Int = 1) -> Int | None:
        """A size that null switches off (``sliding_window``, ``q_lora_rank``)."""
        value = self._find(keys, default, null=True)
        return None if value is None else self._integer(keys[0], value, minimum)

    def float(self, *keys: Str, default: Any = _UNSET) -> Float:
        """A finite number."""
        value = self.optional_float(*keys, default=default)
        if value is None:
            raise self.error(f"{self._prefix}{keys[0]} is null; a number was expected")
        return value

    def optional_float(self, *keys: Str, default: Any = _UNSET) -> Float | None:
        """A finite number that null switches off (``attn_logit_softcapping``)."""
        value = self._find(keys, default, null=True)
        if value is None:
            return None
        if isinstance(value, Bool) or not isinstance(value, (Int, Float)) or not math.isfinite(value):
            raise self.error(f"{self._prefix}{keys[0]} is {_shown(value)}; a finite number was expected")
        return Float(value)

    def bool(self, *keys: Str, default: Any = _UNSET) -> Bool:
        """True or false."""
        value = self._find(keys, default)
        if not isinstance(value, Bool):
            raise self.error(f"{self._prefix}{keys[0]} is {_shown(value)}; true or false was expected")
        return value

    def str(self, *keys: Str, default: Any = _UNSET) -> Str:
        """A word (``hidden_act``)."""
        value = self._find(keys, default)
        if not isinstance(value, Str):
            raise self.error(f"{self._prefix}{keys[0]} is {_shown(value)}; a string was expected")
        return value

    def strs(self, *keys: Str, default: Any = _UNSET) -> tuple[Str, ...]:
        """A list of words (``layer_types``)."""
        value = self._list(keys, default)
        if not all(isinstance(item, Str) for item in value):
            raise self.error(f"{self._prefix}{keys[0]} is {_shown(value)}; a list of strings was expected")
        return tuple(value)

    def ints(self, *keys: Str, default: Any = _UNSET, minimum: Int = 0) -> tuple[Int, ...]:
        """A list of integers (``mlp_only_layers``)."""
        return tuple(self._integer(keys[0], item, minimum) for item in self._list(keys, default))

    def kinds(self, *keys: Str, known: Sequence[Str], count: Int, default: Any = _UNSET, spelt: Mapping[Str, Str] | None = None) -> tuple[Str, ...]:
        """What each layer is (``layer_types``).

        Args:
            keys: the list's name, the usual one first.
            known: the words that may stand in it.
            count: how many layers there are.
            default: what every model of this family has whose file leaves the key out.
            spelt: words of older files, and the known ones that they stand for.

        Raises:
            ModelError: it is not one known word for each layer.
        """
        found = tuple((spelt or {}).get(kind, kind) for kind in self.strs(*keys, default=default))
        if len(found) != count or not set(found) <= set(known):
            raise self.error(f"{self._prefix}{keys[0]} must name {' or '.join(known)} for each of the {count} layers")
        return found

    def get(self, key: Str, default: Any = None) -> Any:
        """What the file holds under a key, unchecked, and nothing else: no class is asked."""
        value = self.data.get(key)
        return default if value is None else value

    def has(self, *keys: Str) -> Bool:
        """The file holds one of these keys, and not as null."""
        return any(self.data.get(key) is not None for key in keys)

    def sub(self, key: Str, *, flat: Str = "", **changed: Any) -> Config:
        """A nested configuration (``text_config``); where the file leaves it out, all of it is the class's default.

        Args:
            key: where it stands.
            flat: its model_type; a file without it holds its keys at the top.
            changed: what the whole file says about the part.
        """
        value = self.data.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(f"{self._prefix}{key} is {_shown(value)}; an object was expected")
        if value is None and self._defaults is None:
            raise self.missing(key)
        at_top = bool(flat) and value is None
        part = Config({**(self.data if at_top else value or {}), **changed}, where=self.where, name=self.name)
        part.assumed, part._prefix = self.assumed, self._prefix if at_top else f"{self._prefix}{key}."
        part._defaults = self._defaults.part(key) if self._defaults else None
        if at_top:
            part._model_type = flat
        return part

    @property
    def model_type(self) -> Str:
        """Hugging Face's, stated or inferred; of a part that does not say, what its class says."""
        if not self._model_type and self._defaults is not None:
            self._model_type = Str(self._defaults.value("model_type"))
        return self._model_type

    @property
    def dtype(self) -> Str | None:
        """What the checkpoint is stored in (``dtype``, before transformers 5 ``torch_dtype``), if the file says."""
        value = self.get("dtype", self.get("torch_dtype"))
        return value.removeprefix("torch.") if isinstance(value, Str) else None

    # ------------------------------------------------------------------ assumptions
    def assume(self, what: Str, source: Str) -> None:
        """Write down a value that the file leaves out, and where it comes from."""
        noted = self.assumed.setdefault(source, [])
        if what not in noted:
            noted.append(what)

    @property
    def assumptions(self) -> tuple[Str, ...]:
        """What was assumed, a sentence for each source."""
        left_out = tuple(f"{', '.join(noted)}: not in config.json, from {source}" for source, noted in self.assumed.items())
        return (self.taken, *left_out) if self.taken else left_out

    # ------------------------------------------------------------------ errors
    def error(self, message: Str) -> ModelError:
        """An error about this file."""
        return ModelError(message, where=self.where)

    def missing(self, key: Str, why: Str = "") -> ModelError:
        """The error for a key that the file leaves out and nothing else determines."""
        if not why and self._defaults is None:
            why = "a file without model_type is a copy that may have dropped anything, so no default can be trusted"
        return self.error(f"leaves out {self._prefix}{key}; {why or 'no default can be trusted'}: add it, or use the model's own config.json")

    # ------------------------------------------------------------------ inside
    def _find(self, keys: Sequence[Str], default: Any, *, null: Bool = False) -> Any:
        for key in keys:
            if key in self.data and (null or self.data[key] is not None):
                return self.data[key]
        if default is not _UNSET:
            return default
        if self._defaults is None:
            raise self.missing(keys[0])
        alias = next((name for name in map(self._defaults.alias, keys) if name and self.data.get(name) is not None), None)
        if alias:
            return self.data[alias]
        if self._defaults.problem:
            raise self.missing(keys[0], self._defaults.problem)
        whole = not self._prefix
        if whole and keys[0] in CORE and not any(key in self.data for key in keys):
            raise self.missing(keys[0], f"the default of {self._defaults.class_name} is another model's number")
        value = next((found for found in map(self._defaults.value, keys) if found is not MISSING), MISSING)
        if value is MISSING or (value is None and not null):
            raise self.missing(keys[0], f"transformers' {self._defaults.class_name} has no default for it")
        self._note(keys[0], value)
        return value

    def _note(self, key: Str, value: Any) -> None:
        assert self._defaults is not None
        self.assume(f"{self._prefix}{key} {_shown(value)}", f"transformers' {self._defaults.class_name}")

    def _integer(self, key: Str, value: Any, minimum: Int) -> Int:
        if isinstance(value, Bool) or not isinstance(value, Int):
            raise self.error(f"{self._prefix}{key} is {_shown(value)}; an integer was expected")
        if not minimum <= value <= LIMIT:
            raise self.error(f"{self._prefix}{key} is {_shown(value)}; an integer from {minimum} to 2^40 was expected")
        return value

    def _list(self, keys: Sequence[Str], default: Any) -> Sequence[Any]:
        value = self._find(keys, default)
        if not isinstance(value, (list, tuple)):
            raise self.error(f"{self._prefix}{keys[0]} is {_shown(value)}; a list was expected")
        return value


def _shown(value: Any) -> Str:
    """A value as JSON spells it, cut to a few words."""
    text = {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, Bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
