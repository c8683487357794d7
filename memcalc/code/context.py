"""The context in which programs run: the tape, the sizes of the batch, and how weights are held and cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from memcalc.code.keeping import CACHED, hold
from memcalc.code.settings import Settings
from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.model import Axis, Component, Weight
from memcalc.tape.tape import Leaf, Node, Tape, nothing
from memcalc.tape.tensor import Tensor

TOWER = "tower "
"""Begins the names of shared tensors that a vision tower holds until it is through."""

Program = Callable[["Context", Any, Tensor], Tensor]
_programs: dict[tuple[str, type], Program] = {}


def runs(component: type[Component]) -> Callable[[Program], Program]:
    """Register a program: how the code of the package that it stands in runs this kind of component."""

    def register(program: Program) -> Program:
        _programs[program.__module__.split(".")[2], component] = program
        return program

    return register


def program_for(code: str, component: type[Component]) -> Program:
    """How an implementation runs a kind of component.

    A program stands in the file of the same name as its component's, which alone is imported; one that stands elsewhere is found by
    importing all files of the implementation.

    Raises:
        InputError: there is no such implementation, or it cannot run this kind of component.
    """
    if (code, component) not in _programs:
        _check(code)
        topic = component.__module__.rsplit(".", 1)[-1]
        modules = _modules_of(code)
        for name in (topic, *modules) if topic in modules else modules:
            import_module(f"memcalc.code.{code}.{name}")
            if (code, component) in _programs:
                break
        else:
            way_out = "" if code == "transformers" else "use code: transformers, or "
            raise InputError(
                f"{code} has no program for {component.__name__}, which is counted only; {way_out}trace the model with `memcalc trace`", where="code"
            )
    return _programs[code, component]


@lru_cache
def _modules_of(code: str) -> tuple[str, ...]:
    return tuple(info.name for info in iter_modules(import_module(f"memcalc.code.{code}").__path__))


@lru_cache
def _check(code: str) -> None:
    import memcalc.code as package

    known = [m.name for m in iter_modules(package.__path__) if m.ispkg]
    if code not in known:
        raise UnknownNameError("code", code, known, where="code")


class Shared(dict[str, Tensor]):
    """Tensors by name, and the names that were asked for (`read`)."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of any dict."""
        self.read.add(name)
        return super().get(name, default)


class Context:
    """A tape with what programs need to know.

    Attributes:
        tape: where tensors are born.
        settings: see `Settings`.
        batch, seq: the two axes of every activation.
        shared: tensors made once per step and used by every layer (rotary angles, masks).
        probabilities: a place for what eager attention returns beside its output, while the layer that runs has a variable for it.
        beside: what a block joins to its input: the tokens of a vision tower.
        asides: what the model computes, holds until its output is dropped, and uses for nothing.
        holds_output: the model's own forward holds the output of the block that runs, an embedding, until the last layer is through.
        lingering: what the model has variables for until the step is over, where the layer that made it is checkpointed.
        arguments: what a checkpoint of the layer that runs keeps beside its input.
        waiting: where gradients wait for the backward pass of all blocks.
        outliving: what the training loop has variables for until the optimizer has stepped.
        selection: what the layer that runs keeps under a checkpoint (`memcalc.code.torchtitan.selection`).
        differentiable: names of shared tensors that gradients flow through, whether or not what runs is recorded.
        passing: what was made inside of the next product for that alone, and goes with it where nothing is recorded.
    """

    def __init__(self, tape: Tape, settings: Settings) -> None:
        self.tape, self.settings = tape, settings
        self.batch, self.seq = Axis(settings.axes[0], settings.batch), Axis(settings.axes[1], settings.seq)
        self.shared = Shared()
        self.probabilities: list[Tensor] | None = None
        self.beside: list[Tensor] = []
        self.asides: list[Node] = []
        self.holds_output = True
        self.lingering: dict[str, tuple[Tensor, ...]] = {}
        self.arguments: list[Tensor] = []
        self.waiting: list[Leaf] = []
        self.outliving: list[Tensor] = []
        self.differentiable: set[str] = set()
        self.selection: Any = None
        self.passing: Tensor | None = None
        self._modules: list[str] = []
        self._cache: list[Tensor] = []

    # ------------------------------------------------------------------ programs
    def run(self, component: Component, x: Tensor, name: str = "") -> Tensor:
        """Run a child on x, under its name."""
        program = program_for(self.settings.code, type(component))
        with self.inside(component.module_name or name):
            return program(self, component, x) if self.settings.marks != "modules" else self._marked(program, component, [x])

    def normed(self, norm: Component | None, x: Tensor, name: str) -> Tensor:
        """x after a norm, where there is one."""
        return x if norm is None else self.run(norm, x, name)

    def _marked(self, program: Program, component: Component, inputs: list[Tensor]) -> Tensor:
        """Run a module between marks: ``enter`` and ``leave`` in forward, ``enter backward`` and ``leave backward`` in backward."""
        path, tape = "/".join(self._modules), self.tape
        inputs[0] = tape.mark_backward(inputs[0], f"leave backward/{path}")
        tape.mark(f"enter/{path}")
        y = program(self, component, inputs.pop())
        tape.mark(f"leave/{path}")
        return tape.mark_backward(y, f"enter backward/{path}")

    def entered(self, x: Tensor) -> Tensor:
        """The input of a child that is not a function of one tensor, as a view of its own that marks where the child begins; see `left`."""
        if self.settings.marks == "none":
            return x
        path = "/".join(self._modules)
        if self.settings.marks == "modules":
            self.tape.mark(f"enter/{path}")
        return self.tape.mark_backward(x, f"leave backward/{path}")

    def left(self, y: Tensor) -> Tensor:
        """Its output, through which gradients come."""
        if self.settings.marks != "modules":
            return y
        path = "/".join(self._modules)
        self.tape.mark(f"leave/{path}")
        return self.tape.mark_backward(y, f"enter backward/{path}")

    def place(self) -> tuple[list[str], tuple[str, ...]]:
        """Which module is running, for what runs again later."""
        return list(self._modules), self.tape.place()

    @contextmanager
    def at(self, place: tuple[list[str], tuple[str, ...]]) -> Iterator[None]:
        """What is inside belongs to the module of that place."""
        before, self._modules = self._modules, list(place[0])
        try:
            with self.tape.at(place[1]):
                yield
        finally:
            self._modules = before

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """What runs inside belongs to the child of this name; for children that are not a function of one tensor."""
        self._modules.append(name)
        try:
            with self.tape.scope(name):
                yield
        finally:
            self._modules.pop()

    def reaches(self, length: int) -> bool:
        """Whether the sequences are at least so long; an array of lengths lies on one side.

        Raises:
            InputError: it lies on both.
        """
        found = self.seq.size >= length
        if isinstance(found, bool):
            return found
        if found.all() or not found.any():
            return bool(found.all())
        raise InputError(f"an array of sequence lengths must not cross {length}", where="seq_len")

    # ------------------------------------------------------------------ cache
    def remember(self, x: Tensor, name: str, *, window: int | None = None) -> Tensor:
        """In inference, what the layer goes on with once x is in the cache, which is alive after the step; in training, x itself.

        A state is copied; what becomes of what attention caches, with its window, `memcalc.code.keeping` says.
        """
        if self.settings.training or not self.settings.cached:
            return x
        path = "/".join(("kv_cache", *self._modules, name))
        seen = stays = self.tape.input(x.shape, x.dtype, path) if name not in CACHED else None
        if seen is None:
            seen, stays = hold(self, x, path, window=window)
        if stays is not None:
            self._cache.append(stays)
        return seen

    def keep(self, x: Tensor, name: str) -> None:
        """In inference, x itself stays in the cache, alive after the step."""
        if not self.settings.training:
            self._cache.append(x)
            if x.storage is not None:
                x.storage.record.path = "/".join(("kv_cache", *self._modules, name))

    def set_aside(self, tensors: tuple[Tensor, ...]) -> None:
        """What the model's output refers to, and nothing uses."""
        self.asides.append(Node([], tensors, nothing, 0))

    # ------------------------------------------------------------------ weights
    @property
    def has_tp(self) -> bool:
        """Whether layers are cut at all; an array of degrees holds none of 1."""
        tp = self.settings.tp
        return not (isinstance(tp, int) and tp == 1)

    @property
    def has_cp(self) -> bool:
        """Whether the sequence is cut everywhere; an array of degrees holds none of 1."""
        cp = self.settings.cp
        return not (isinstance(cp, int) and cp == 1)

    @property
    def has_one_sequence(self) -> bool:
        """Whether heads, and pieces of the sequence, lie in order as they are; an array of batch sizes counts as several."""
        return isinstance(self.batch.size, int) and self.batch.size == 1

    def parameter(self, weight: Weight, *, has_gradient: bool = False) -> Tensor:
        """A weight of the component that runs, as this rank holds it."""
        return self.parameter_at(self.weight_path(weight), weight, has_gradient=has_gradient)

    def parameter_at(self, path: str, weight: Weight, *, has_gradient: bool = False) -> Tensor:
        """A weight that another component holds, by its path."""
        takes = self.settings.trainable
        trainable = self.settings.training and not weight.frozen and (takes is None or takes(path))
        dtype = self.computes_in(weight.dtype)
        return self.tape.parameter(path, weight.local(self.settings.degrees), dtype, trainable=trainable, has_gradient=has_gradient)

    def computes_in(self, own: str | None) -> str:
        """The dtype in which a weight is computed with that may have one of its own."""
        return self.settings.dtype if own is None or self.settings.casts_weights else own

    def weight_path(self, weight: Weight) -> str:
        """The path that `parameter` gives it."""
        path, tied = "/".join((*self._modules, weight.name)), self.settings.tied
        return path if tied is None or path != tied[0] else tied[1]


__all__ = ["TOWER", "Context", "Program", "Settings", "Shared", "program_for", "runs"]
