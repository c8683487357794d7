"""Rules that tables of keys are made of: a switch, a word among several, a whole number, a key that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memcalc.errors import InputError, UnknownNameError
from memcalc.importers.facts import Entry, Facts

Write = Callable[[Facts, Entry], None]

ATTENTION = {
    "flash_attention_2": "flash_attention_2", "flash_attention_3": "flash_attention_2", "flash_attn": "flash_attention_2", "fa2": "flash_attention_2",
    "fa3": "flash_attention_2", "flash": "flash_attention_2", "flash_attn_3": "flash_attention_2", "sdpa": "sdpa", "eager": "eager",
    "te": "flash_attention_2", "disabled": "eager", "unfused": "eager",
}  # fmt: skip


def whole_number(name: str) -> Write:
    """A whole number."""

    def write(facts: Facts, entry: Entry) -> None:
        facts.put(name, entry.number, entry.where)

    return write


def real_number(name: str) -> Write:
    """A number, with a fraction or without."""

    def write(facts: Facts, entry: Entry) -> None:
        facts.put(name, entry.real, entry.where)

    return write


def switch(name: str, on: Any = True, off: Any = False) -> Write:  # noqa: FBT002 (values, not flags)
    """A bool that chooses between two values; None writes nothing."""

    def write(facts: Facts, entry: Entry) -> None:
        value = on if entry.is_on else off
        if value is not None:
            facts.put(name, value, entry.where)

    return write


def word(name: str, words: Mapping[str, Any], *, otherwise: str = "refuse") -> Write:
    """One of several words, in any case.

    Args:
        name: the fact.
        words: what each means; None writes nothing.
        otherwise: "refuse" a word that is not among them, or "leave" it: list it as not used.
    """

    def write(facts: Facts, entry: Entry) -> None:
        if entry.word in words:
            if words[entry.word] is not None:
                facts.put(name, words[entry.word], entry.where)
        elif otherwise == "leave":
            facts.leave(entry)
        else:
            raise UnknownNameError(entry.key, entry.word, words, where=entry.where)

    return write


def when(name: str, value: Any, *, then: str = "") -> Write:
    """A switch that is listed as not used when it is on, with the reason; off it is what memcalc counts anyway."""

    def write(facts: Facts, entry: Entry) -> None:
        try:
            on = entry.is_on
        except InputError:
            on = True
        if on:
            if name:
                facts.put(name, value, entry.where)
            facts.leave(entry, then)

    return write


def unless(*usual: Any, why: str = "") -> Write:
    """Not used; listed unless it is one of the usual values, which change nothing."""
    plain = {str(value).lower() for value in usual} | {"none", "null", ""}

    def write(facts: Facts, entry: Entry) -> None:
        if entry.word not in plain and entry.value not in ([], {}):
            facts.leave(entry, why)

    return write


def attention(facts: Facts, entry: Entry) -> None:
    """The attention kernel, by the names that frameworks give it."""
    asked = entry.word.rpartition("/")[2].replace("-", "_")
    if asked in ("auto", "false", "none", "local", "fused"):
        return
    known = "flash_attention_2" if asked.startswith("flash_attn") else ATTENTION.get(asked)
    if known is None:
        facts.leave(entry, "sdpa is counted")
        return
    facts.put("attention", known, entry.where)


def each(*writes: Write) -> Write:
    """Several, one after another."""

    def write(facts: Facts, entry: Entry) -> None:
        for one in writes:
            one(facts, entry)

    return write


def names(text: str) -> tuple[str, ...]:
    """Names and patterns, separated by spaces."""
    return tuple(text.split())
