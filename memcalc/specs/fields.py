"""The keys of a run as data, read off the pydantic fields: names, flags, what each accepts. Flags, help and messages follow from it."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from memcalc.specs.run import Run
from memcalc.specs.spec import IS_DTYPE, Spec

Kind = Literal["int", "float", "bool", "choice", "dtype", "text", "list", "names", "map", "any"]
Path = tuple[str, ...]

FLAT = ("sharding", "generation", "loading", "serving", "hardware")
"""Sections whose keys are flags without the section's name before them."""

ALIASES: Mapping[str, tuple[str, ...]] = {"seq-len": ("max-seq-length",)}
"""Further names of a flag."""


class Leaf(NamedTuple):
    """A key that holds a value.

    Attributes:
        path: its place in the run file (``("sharding", "tp")``).
        kind: what it holds; ``any`` is whatever YAML says.
        choices: the values of a closed list.
        bounds: pydantic's ``ge``, ``gt``, ``le``, ``lt``, those that there are.
        nullable: null is accepted.
        default: None where there is none, too.
        help: one phrase.
        is_path: its text may be a path.
    """

    path: Path
    kind: Kind
    choices: tuple[Any, ...]
    bounds: Mapping[str, float]
    nullable: bool
    default: Any
    help: str
    is_path: bool

    @property
    def key(self) -> str:
        """``sharding.tp``."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """The name of its flag, without the leading dashes."""
        return flag_of(self.path)

    @property
    def accepts(self) -> str:
        """What it accepts, as a phrase; null apart."""
        return _accepts(self)


class Section(NamedTuple):
    """A key that holds a map of keys.

    Attributes:
        spec: the class that holds it.
        path: its place in the run file.
        nullable: it may be absent (``lora``), which differs from one with defaults.
        children: by name.
        help: one phrase.
    """

    spec: type[Spec]
    path: Path
    nullable: bool
    children: Mapping[str, Leaf | Section]
    help: str

    @property
    def key(self) -> str:
        """``lora``."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """The name of the flag that switches it on."""
        return flag_of(self.path)

    @property
    def accepts(self) -> str:
        """What it accepts, as a phrase; null apart."""
        return f"a map of keys ({', '.join(list(self.children)[:3])}, …)"

    def leaves(self) -> Iterator[Leaf]:
        """All leaves below."""
        for child in self.children.values():
            if isinstance(child, Leaf):
                yield child
            else:
                yield from child.leaves()


@cache
def run_keys() -> Section:
    """The keys of a run."""
    return _section(Run, (), nullable=False, help_text="")


@cache
def flags() -> dict[str, Leaf | Section]:
    """Every flag that is a key of the run file, by name without dashes; a section that may be absent has one, too."""
    found: dict[str, Leaf | Section] = {}
    for node in _nodes(run_keys()):
        if isinstance(node, Leaf) or node.nullable:
            for name in (node.flag, *ALIASES.get(node.flag, ())):
                found[name] = node
    return found


def flag_of(path: Path) -> str:
    """``("sharding", "dp_replicate")`` → ``dp-replicate``; ``("lora", "r")`` → ``lora-r``."""
    return "-".join(path[1:] if path[0] in FLAT and len(path) > 1 else path).replace("_", "-")


def find(path: Path) -> Leaf | Section | None:
    """The key at a place, if there is one."""
    node: Leaf | Section = run_keys()
    for name in path:
        if isinstance(node, Leaf) or name not in node.children:
            return node if isinstance(node, Leaf) else None
        node = node.children[name]
    return node


def _nodes(section: Section) -> Iterator[Leaf | Section]:
    for child in section.children.values():
        yield child
        if isinstance(child, Section):
            yield from _nodes(child)


def _section(model: type[Spec], path: Path, *, nullable: bool, help_text: str) -> Section:
    children = {name: _node(info, (*path, name)) for name, info in model.model_fields.items()}
    return Section(model, path, nullable, children, help_text)


def _node(info: FieldInfo, path: Path) -> Leaf | Section:
    arms, marks = _unfold(info.annotation)
    marks += info.metadata
    nullable = type(None) in arms
    arms = [arm for arm in arms if arm is not type(None)]
    help_text = info.description or ""
    for arm in arms:
        if isinstance(arm, type) and issubclass(arm, Spec):
            return _section(arm, path, nullable=nullable, help_text=help_text)
    kind, choices = _kind(arms, marks)
    bounds = {name: value for mark in _flat(marks) for name in ("ge", "gt", "le", "lt") if (value := getattr(mark, name, None)) is not None}
    extra = info.json_schema_extra
    default = None if info.is_required() else info.get_default()
    return Leaf(path, kind, choices, bounds, nullable, default, help_text, isinstance(extra, dict) and bool(extra.get("path")))


def _unfold(annotation: Any) -> tuple[list[Any], list[Any]]:
    """The arms of a union, and the marks that were annotated on them."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *marks = get_args(annotation)
        arms, more = _unfold(inner)
        return arms, [*marks, *more]
    if origin is Union or origin is getattr(types, "UnionType", None):
        arms, marks = [], []
        for arm in get_args(annotation):
            some, more = _unfold(arm)
            arms += some
            marks += more
        return arms, marks
    return [annotation], []


def _flat(marks: list[Any]) -> Iterator[Any]:
    for mark in marks:
        yield from mark.metadata if isinstance(mark, FieldInfo) else (mark,)


def _kind(arms: list[Any], marks: list[Any]) -> tuple[Kind, tuple[Any, ...]]:
    if all(get_origin(arm) is Literal for arm in arms):
        return "choice", tuple(value for arm in arms for value in get_args(arm))
    origins = {get_origin(arm) or arm for arm in arms}
    if origins & {list, tuple} and origins <= {list, tuple, str}:
        return ("list" if str in origins else "names"), ()
    if origins in ({dict}, {dict, str}):
        return "map", ()
    if origins == {str}:
        return ("dtype" if IS_DTYPE in marks else "text"), ()
    simple: dict[Any, Kind] = {bool: "bool", int: "int", float: "float"}
    return (simple.get(arms[0], "any") if len(arms) == 1 else "any"), ()


def _accepts(leaf: Leaf) -> str:
    if leaf.kind == "choice":
        return f"one of {', '.join(map(str, leaf.choices))}" if len(leaf.choices) > 1 else str(leaf.choices[0])
    if leaf.kind in ("int", "float"):
        return _range("a whole number" if leaf.kind == "int" else "a number", leaf.bounds)
    words = {
        "bool": "true or false",
        "dtype": "a dtype such as bfloat16",
        "text": "text",
        "list": "a name or a list of names",
        "names": "a name or a list of names",
        "map": "a map or a path" if leaf.is_path else "a map",
        "any": "a value of its kind",
    }
    return words[leaf.kind]


def _range(noun: str, bounds: Mapping[str, float]) -> str:
    words = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}
    limits = " ".join(f"{words[name]} {_number(bounds[name])}" for name in ("ge", "gt", "le", "lt") if name in bounds)
    return f"{noun} {limits}".rstrip()


def _number(value: float) -> str:
    exponent = int(value).bit_length() - 1
    return f"2^{exponent}" if exponent >= 20 and value == 2**exponent else f"{value:g}"
