"""What families share whose layers are counted and have no program that runs them: parts under the names that they have in the model's code."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Embedding, Linear
from memcalc.components.vision import Parts
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families._decoder import Sizes
from memcalc.specs.model import Axis, Block, Component, ModelSpec, Weight


def linears(inputs: Axis, outputs: Axis, *names: str, bias: bool = False) -> tuple[tuple[str, Component], ...]:
    """Linear layers of one shape, each under its name."""
    return tuple((name, Linear(name, inputs, outputs, bias)) for name in names)


def vectors(width: Axis, *names: str) -> tuple[Weight, ...]:
    """Vectors that are parameters of the part itself."""
    return tuple(Weight(name, (width,)) for name in names)


def within(name: str, *parts: tuple[str, Component]) -> tuple[str, Component]:
    """Parts of one module."""
    return name, Parts(parts)


def model(
    config: Config, sizes: Sizes, layers: tuple[Block, ...], *, what: str, norm: Component | None, head: Component | None = None, **more: object
) -> ModelSpec:
    """The whole model.

    Args:
        config: the file.
        sizes: of the model.
        layers: between the ends.
        what: of it is not run, in words.
        norm: the final one.
        head: where it is not one that is tied as the file says.
        more: further arguments of `language_model`; ``embedding`` where it is not a table alone.
    """
    tied = config.bool("tie_word_embeddings")
    embedding = more.pop("embedding", None) or Embedding(sizes.vocab, sizes.hidden, tied=tied)
    whole = text.language_model(config, sizes, layers, embedding=embedding, norm=norm, head=head, **more)  # type: ignore[arg-type]
    return replace(whole, untraced=(what,))
