"""What transformers makes of a config.json: asked only for what the file leaves out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

MISSING = object()
"""There is no such value."""


class Defaults:
    """The configuration object that transformers builds from the same file, derived values included.

    Nothing is imported before the first question. Only transformers' own classes are asked: code that comes with a model never runs.

    Args:
        model_type: Hugging Face's.
        data: the file's content.
    """

    def __init__(self, model_type: str, data: Mapping[str, Any]) -> None:
        self._model_type, self._data = model_type, data
        self._built: Any = MISSING
        self.problem = ""

    def value(self, key: str) -> Any:
        """The object's attribute, or `MISSING`; then `problem` says why where it was not the key."""
        return getattr(self._config, key, MISSING)

    def alias(self, key: str) -> str | None:
        """The name that the class's files use for this key (``hidden_size`` → ``n_embd``)."""
        names = getattr(type(self._config), "attribute_map", None) or {}
        return names.get(key) or next((name for name, real in names.items() if real == key), None)

    @property
    def class_name(self) -> str:
        """Who answers."""
        return type(self._config).__name__

    def part(self, key: str) -> Defaults:
        """The defaults of a nested configuration."""
        return _Part(self, key)

    @property
    def _config(self) -> Any:
        if self._built is MISSING:
            self._built = self._build()
        return self._built

    def _build(self) -> Any:
        with _quiet():
            try:
                from transformers import __version__
                from transformers.models.auto.configuration_auto import CONFIG_MAPPING
            except ImportError as error:
                self.problem = f"transformers, which knows the defaults, cannot be imported ({_line(error)})"
                return None
            if self._model_type not in CONFIG_MAPPING:
                self.problem = f"transformers {__version__} has no configuration class for {self._model_type!r} to take its default from"
                return None
            config_class = CONFIG_MAPPING[self._model_type]
            try:
                return config_class.from_dict(deepcopy(dict(self._data)))
            except Exception as error:  # noqa: BLE001 (whatever a class raises over a file of the user's)
                self.problem = f"transformers' {config_class.__name__} refuses the file: {_line(error)}"
                return None


class _Part(Defaults):
    """The defaults of a configuration inside another."""

    def __init__(self, whole: Defaults, key: str) -> None:
        super().__init__("", {})
        self._whole, self._key = whole, key

    def _build(self) -> Any:
        value = self._whole.value(self._key)
        self.problem = self._whole.problem
        return None if value is MISSING else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers says nothing on stderr meanwhile, not even that torch is not there."""
    wanted = {"TRANSFORMERS_NO_ADVISORY_WARNINGS": "1", "TRANSFORMERS_VERBOSITY": "critical"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        from transformers.utils import logging

        level = logging.get_verbosity()
        logging.set_verbosity(50)
    except ImportError:
        logging = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if logging is not None:
            logging.set_verbosity(level)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
