"""Words of a command line as keys and values: ``--flag value``, ``--flag=value``, bare switches, ``--no-flag``, ``key=value``, several values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.importers.format import Format, normal
from memcalc.importers.source import Place, Source

_ASSIGNED = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=.*", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
NAME = "command"
MAX_LENGTH = 100_000
"""No honest word or variable has more characters."""
BEFORE = ("env", "export", "sudo", "nohup", "time", "exec", "&&", ";", "do", "then", "else")
"""Words that may stand before a program and change nothing of what it does."""


class Words(NamedTuple):
    """What the words of a program say.

    Attributes:
        given: each key with its value (text, a list of texts, or True for a bare switch), and how it was written.
        plain: words that belong to no key, in their order.
    """

    given: tuple[tuple[str, Any, str], ...]
    plain: tuple[str, ...]

    def get(self, *names: str) -> Any:
        """The last value of a key by any of its names; None where it is not given."""
        found = [value for key, value, _ in self.given if normal(key) in names]
        return found[-1] if found else None

    def without(self, *names: str) -> Words:
        """The same without some keys."""
        return Words(tuple(item for item in self.given if normal(item[0]) not in names), self.plain)


def variables(argv: Sequence[str], *, known: Mapping[str, str] | None = None) -> tuple[dict[str, str], list[str]]:
    """Environment variables in front, with ``env`` and ``export`` or without, and the rest; one that adds to itself adds to what is `known`."""
    words, found = list(argv), dict[str, str]()
    while words and (words[0] in BEFORE or _VARIABLE.fullmatch(words[0])):
        word = words.pop(0)
        if _VARIABLE.fullmatch(word):
            name, _, value = word.partition("=")
            found[name] = _added(name, value.removesuffix(";"), before=found.get(name, (known or {}).get(name, "")))
        while word in ("env", "sudo", "time") and words and words[0].startswith("-"):
            del words[: 2 if words[0] in ("-u", "-g", "-C") else 1]
    return found, words


def _added(name: str, value: str, *, before: str) -> str:
    """A value in which its own name stands for what it was before.

    Raises:
        InputError: it grows without end.
    """
    itself = re.compile(rf"\$(?:\{{{name}(?::?[-=]((?:[^{{}}]|\{{[^{{}}]*\}})*))?\}}|{name}\b)")
    if len(value) + len(itself.findall(value)) * len(before) > MAX_LENGTH:
        raise InputError(f"${name} holds more than {MAX_LENGTH:,} characters", where="command")
    return itself.sub(lambda match: before or (match.group(1) or "").strip("\"'"), value)


def split(argv: Sequence[str], *, switches: frozenset[str] = frozenset()) -> Words:
    """Keys and values of some words; `switches` take no value though a word follows."""
    given: list[tuple[str, Any, str]] = []
    plain: list[str] = []
    words = list(argv)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if is_flag(word):
            key, equals, attached = word.lstrip("-").partition("=")
            if equals:
                given.append((key, attached, word.partition("=")[0]))
                continue
            values: list[str] = []
            while normal(key) not in switches and at < len(words) and not is_flag(words[at]) and not (values and _stands_alone(words[at])):
                if _SEVERAL.fullmatch(words[at]):
                    break
                values.append(words[at])
                at += 1
            given.append((key, True if not values else values[0] if len(values) == 1 else values, word))
        elif _ASSIGNED.fullmatch(word):
            key, _, value = word.lstrip("+~").partition("=")
            given.append((key, value, f"{word.partition('=')[0]}="))
        else:
            plain.append(word)
    return Words(tuple(given), tuple(plain))


_SEVERAL = re.compile(r"\$\{?(?:\w+_)?(?:args?|opts?|options?|flags?|extras?)(?:_\w+)?\}?", re.IGNORECASE)
OPEN = re.compile(r"\$\{?\w+\}?")
"""A word of which nothing is known but the variable that it stands in."""


def _stands_alone(word: str) -> bool:
    """Whether a word behind a flag's first value is none of its further ones: an assignment, a configuration, or what nothing is known of."""
    return bool(_ASSIGNED.fullmatch(word) or OPEN.fullmatch(word)) or word.endswith((".yaml", ".yml", ".toml"))


def leading(argv: Sequence[str], *, switches: frozenset[str]) -> tuple[Words, list[str]]:
    """A launcher's own options, each with one value unless it is a switch, and what follows the first word that is none."""
    given: list[tuple[str, Any, str]] = []
    words = list(argv)
    while words and is_flag(words[0]):
        word = words.pop(0)
        if word == "--":
            break
        key, equals, attached = word.lstrip("-").partition("=")
        if word == "-m" or normal(key) == "module":
            words.insert(0, "-m")
            break
        if equals or normal(key) in switches or not words:
            given.append((key, attached if equals else True, word.partition("=")[0]))
        else:
            given.append((key, words.pop(0), word))
    return Words(tuple(given), ()), words


def is_flag(word: str) -> bool:
    """Whether a word is a flag, and no negative number."""
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit() and not re.match(r"-\.\d", word)


def as_source(words: Words, format_: Format, *, folder: str = ".") -> Source:
    """The keys of a command for the table of a format; ``--no-flag`` switches off what the table knows."""
    data: dict[str, Any] = {}
    lines: dict[Place, Any] = {}
    for key, value, shown in words.given:
        name = normal(key)
        bare = name.removeprefix("no_")
        switched_off = bare != name and name not in format_.keys and bare in format_.keys and value is True
        name = bare if switched_off else name
        data[name] = False if switched_off else value
        lines[(name,)] = shown
    return Source(data, lines, NAME, folder)


__all__ = ["OPEN", "Words", "as_source", "is_flag", "leading", "split", "variables"]
